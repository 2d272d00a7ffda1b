"""Draws the batches of an epoch by seed; they do not depend on the number of processes.

An order chooses the classes of a batch. It is a function that takes a random generator and returns N row
numbers, int64: the batches of an epoch, one after the other. No row is twice in a batch; a row may be in
several batches of an epoch, or in none. Orders draw from groups: the rows of a class, or the classes below a
class.

Shapes: N rows, E paths or entries, H levels, G groups, V visits, S batches, B rows of a batch, C classes.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

Indices = NDArray[np.int64]
Order = Callable[[np.random.Generator], Indices]
"""A function that draws the row numbers (N,) of an epoch, batch after batch, with a random generator."""
DRAWS = 8
"""The number of draws by class for a batch; positions still empty are then filled with any rows."""


@dataclass(frozen=True, eq=False)
class Groups:
    """Groups of rows or classes: group g of G has `members[offsets[g]:offsets[g + 1]]`; both are int64."""

    offsets: Indices
    members: Indices

    @classmethod
    def of(cls, group_E: Indices, member_E: Indices, groups: int) -> Groups:
        """Builds groups from pairs of a group (0 to `groups` - 1) and a member, in any order."""
        sizes = np.bincount(group_E, minlength=groups)
        return cls(_starts(sizes), member_E[np.argsort(group_E, kind="stable")])

    @property
    def sizes(self) -> Indices:
        """The number of members of each group (G,)."""
        return np.diff(self.offsets)

    def draw(self, visited_V: Indices, count: int, rng: np.random.Generator) -> Indices:
        """Draws `count` members (V, count) of each visited group, none twice in a visit.

        A group with fewer members gives all of them and -1 for the others; a visited group of -1 gives -1. A
        group is shuffled, visited until fewer than `count` members are left, and shuffled again: no member
        is drawn twice before that.
        """
        valid_V = visited_V >= 0
        group_V = visited_V[valid_V]
        sizes = self.sizes
        visit_sizes = np.minimum(sizes, count)
        visits_a_round = sizes // np.maximum(visit_sizes, 1)
        visits = np.bincount(group_V, minlength=len(sizes))
        rounds = -(-visits // np.maximum(visits_a_round, 1))
        shuffled, starts = self._shuffle_members(rounds, rng)
        round_V, visit_V = np.divmod(_count_repeats(group_V, visits), visits_a_round[group_V])
        start_V = starts[group_V] + round_V * sizes[group_V] + visit_V * visit_sizes[group_V]
        slot = np.arange(count)
        is_member = slot < visit_sizes[group_V, None]
        members = np.full((len(visited_V), count), -1, dtype=np.int64)
        members[valid_V] = np.where(is_member, shuffled[np.where(is_member, start_V[:, None] + slot, 0)], -1)
        return members

    def _shuffle_members(self, rounds_G: Indices, rng: np.random.Generator) -> tuple[Indices, Indices]:
        """Returns each group's members `rounds_G` times, each time shuffled, and each group's start (G,)."""
        sizes = self.sizes
        lengths = rounds_G * sizes
        starts = _starts(lengths)[:-1]
        group_E = np.repeat(np.arange(len(sizes)), lengths)
        round_E, place_E = np.divmod(np.arange(len(group_E)) - starts[group_E], sizes[group_E])
        key_E = _starts(rounds_G)[group_E] + round_E + rng.random(len(group_E))
        return self.members[self.offsets[group_E] + place_E][np.argsort(key_E)], starts


def _starts(lengths: Indices) -> Indices:
    return np.concatenate([[0], np.cumsum(lengths)])


def _count_repeats(values_V: Indices, counts: Indices) -> Indices:
    """Returns, for each of V values, how often it occurs earlier; `counts` has the total of each value."""
    repeat_V = np.empty(len(values_V), dtype=np.int64)
    order = np.argsort(values_V, kind="stable")
    repeat_V[order] = np.arange(len(values_V)) - np.repeat(_starts(counts)[:-1], counts)
    return repeat_V


def tree(path_EH: Indices, row_E: Indices) -> tuple[Groups, ...]:
    """Builds the tree of the classes of E paths (E, H), coarse level first, as H + 1 `Groups`.

    The first has one group, the classes of the coarsest level; the next ones group the classes of a level by
    their parent; the last has the rows of each finest class. A row may be on several paths. Classes without a
    row are left out, and -1 is a class like the others.
    """
    groupings, parent_E = [], np.zeros(len(path_EH), dtype=np.int64)
    width = int(path_EH.max(initial=0)) + 2
    nodes = 1
    for class_E in path_EH.T:
        node_keys, node_E = np.unique(parent_E * width + class_E + 1, return_inverse=True)
        groupings.append(Groups.of(node_keys // width, np.arange(len(node_keys)), nodes))
        parent_E, nodes = node_E, len(node_keys)
    return (*groupings, Groups.of(parent_E, row_E, nodes))


class EpochSampler:
    """Batches of row indices for one of `world_size` processes.

    The rows of epoch e are drawn from (seed, e) alone: a permutation of all rows, or what `order` draws. Its
    b-th batch is the b-th run of `batch_size` rows, cut into `world_size` contiguous slices of near-equal
    length, one a rank: the slices of all ranks, in rank order, are the batch of a single process.

    The last, smaller batch is dropped where `drop_last` says so, and always where it has fewer rows than
    max(world_size * least, 2): each rank needs `least` rows, and one row alone has nothing to contrast with.

    Raises:
        ValueError: For a batch size below max(world_size * least, 2), a rank outside the world, and too few
            rows for one batch.

    Example:
        >>> [len(batch) for batch in EpochSampler(10, batch_size=4, seed=0).batches(epoch=0)]
        [4, 4, 2]
    """

    def __init__(
        self,
        rows: int,
        batch_size: int,
        seed: int,
        rank: int = 0,
        world_size: int = 1,
        drop_last: bool = False,
        order: Order | None = None,
        least: int = 1,
    ) -> None:
        if not 0 <= rank < world_size:
            raise ValueError(f"rank {rank} outside 0..{world_size - 1}")
        smallest = max(world_size * least, 2)
        if batch_size < smallest:
            raise ValueError(f"batch_size {batch_size} below {smallest}")
        self.rows, self.batch_size, self.seed = rows, batch_size, seed
        self.rank, self.world_size, self.order = rank, world_size, order
        n_full, remainder = divmod(rows, batch_size)
        self.steps_per_epoch = n_full + (remainder >= smallest and not drop_last)
        if self.steps_per_epoch == 0:
            raise ValueError(f"{rows} rows make no batch of {batch_size}")

    def batches(self, epoch: int, start_step: int = 0) -> Iterator[Tensor]:
        """Yields this rank's slice (int64) of every batch of an epoch, from `start_step` on."""
        rows = self._epoch_rows(epoch)
        for step in range(start_step, self.steps_per_epoch):
            batch = rows[step * self.batch_size : (step + 1) * self.batch_size]
            yield torch.tensor_split(batch, self.world_size)[self.rank]

    def _epoch_rows(self, epoch: int) -> Tensor:
        # Every (seed, epoch) has its own state; with seed + epoch, neighbouring seeds would share epochs.
        seeds = np.random.SeedSequence([self.seed, epoch])
        if self.order is not None:
            return torch.from_numpy(self.order(np.random.default_rng(seeds)))
        number = seeds.generate_state(1, np.uint64)[0]
        generator = torch.Generator().manual_seed(int(number >> np.uint64(1)))
        return torch.randperm(self.rows, generator=generator)


class _Order(ABC):
    def __init__(self, rows: int, batch_size: int) -> None:
        self.rows, self.batch_size = rows, min(batch_size, rows)

    def __call__(self, rng: np.random.Generator) -> Indices:
        """Draws the rows of an epoch with `rng`. The last, smaller batch is a whole batch cut short."""
        batches = -(-self.rows // self.batch_size)
        rows_SB = _first_distinct_rows(self._draw(batches, 1.0, rng), self.batch_size)
        draws = 1
        while len(short_batches := np.flatnonzero(rows_SB[:, -1] < 0)):
            open_share = float((rows_SB[short_batches] < 0).sum(axis=1).max()) / self.batch_size
            if draws < DRAWS:
                extra_rows = self._draw(len(short_batches), open_share, rng)
            else:
                extra_rows = rng.integers(self.rows, size=(len(short_batches), self.batch_size))
            rows_SB[short_batches] = _first_distinct_rows(
                np.hstack([rows_SB[short_batches], extra_rows]), self.batch_size
            )
            draws += 1
        # Each batch is shuffled, so that micro-batches and slices cut from it tend to hold all classes.
        key_SB = rng.random(rows_SB.shape)
        key_SB.reshape(-1)[self.rows :] = 1
        shuffled_SB = np.take_along_axis(rows_SB, np.argsort(key_SB, axis=1), axis=1)
        return shuffled_SB.reshape(-1)[: self.rows]

    @abstractmethod
    def _draw(self, batches: int, share: float, rng: np.random.Generator) -> Indices:
        """Draws rows (S, at least share * B) for S batches; the caller skips repeats and -1."""


class Balanced(_Order):
    """An order that draws the rows of each class in proportion to (rows of the class)^power.

    A class c gets S B n_c^power / sum_d n_d^power of the S B draws, rounded up or down by chance, in random
    order. Each draw takes a row of the class, and no row twice before all others of the class. So with power
    0 a row on several paths is drawn in proportion to the sum of 1 / n_c over its classes. A row that is in
    its batch already is replaced by another draw.
    Source: for single labels Kang et al. 2020, Eq. 1 (0: class-balanced, 1/2: square root, 1: as they come).
    """

    def __init__(self, classes: Groups, rows: int, batch_size: int, power: float = 0.0) -> None:
        super().__init__(rows, batch_size)
        self.classes = classes
        weights = classes.sizes ** float(power)  # whole powers of integers overflow
        self.shares = weights / weights.sum()

    def _draw(self, batches: int, share: float, rng: np.random.Generator) -> Indices:
        total = batches * int(np.ceil(share * self.batch_size))
        bounds = np.floor(np.cumsum(self.shares) * total + rng.random()).astype(np.int64)
        bounds[-1] = total
        visits = rng.permutation(np.repeat(np.arange(len(bounds)), np.diff(bounds, prepend=0)))
        return self.classes.draw(visits, 1, rng).reshape(batches, -1)


class Grouped(_Order):
    """An order that draws some classes for a batch and `k` rows of each of them.

    In a hierarchy it draws classes of the coarsest level, and `branches` classes below each class drawn.
    A batch has B / (k branches^(H - 1)) classes of the coarsest level. All of these are drawn before any is
    drawn again, regardless of size; likewise the classes below a class, and the rows of a finest class. If
    the data set has fewer classes than a batch would take, more is drawn of each; a class with fewer rows, or
    fewer classes below it, gives all of them, and further classes complete the batch.

    H = 1 is P x K sampling (Hermans et al. 2017). For H > 1 an anchor has positives at every level, as
    Zhang et al. 2022 ask for; how the batch is drawn is ours.
    """

    def __init__(
        self, levels: tuple[Groups, ...], rows: int, batch_size: int, k: int, branches: int = 2
    ) -> None:
        super().__init__(rows, batch_size)
        self.levels = levels
        self.counts: list[int] = []
        n_groups = 1
        finest = len(levels) - 2
        for depth, level in enumerate(levels[:-1]):
            target = self.batch_size // (k * branches ** (finest - depth))
            self.counts.append(max(1, target // n_groups))
            n_groups = min(n_groups * self.counts[-1], len(level.members))
        self.counts.append(max(k, self.batch_size // n_groups))

    def _draw(self, batches: int, share: float, rng: np.random.Generator) -> Indices:
        first, *below = self.counts
        nodes = np.zeros(batches, dtype=np.int64)
        for level, count in zip(self.levels, (int(np.ceil(share * first)), *below), strict=True):
            nodes = level.draw(nodes.reshape(-1), count, rng)
        return nodes.reshape(batches, -1)


def _first_distinct_rows(rows_SM: Indices, size: int) -> Indices:
    """Returns the first `size` distinct rows of each batch, in their order, padded with -1."""
    order = np.argsort(rows_SM, axis=1, kind="stable")
    sorted_rows = np.take_along_axis(rows_SM, order, axis=1)
    is_new = np.diff(sorted_rows, axis=1, prepend=-1) > 0
    keep = np.empty_like(is_new)
    np.put_along_axis(keep, order, is_new, axis=1)
    front = np.argsort(~keep, axis=1, kind="stable")[:, :size]
    rows = np.where(np.take_along_axis(keep, front, axis=1), np.take_along_axis(rows_SM, front, axis=1), -1)
    n_missing = size - rows.shape[1]
    return np.pad(rows, ((0, 0), (0, n_missing)), constant_values=-1) if n_missing > 0 else rows
