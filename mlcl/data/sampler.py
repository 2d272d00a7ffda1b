"""The batches of an epoch: global, seeded, and the same for any number of processes.

An order chooses the classes of a batch. It is a function of a random generator that returns N row numbers,
int64: the batches of an epoch, one after the other. No row is twice in a batch; a row may be in several
batches of an epoch, or in none.

Shapes: N rows, H levels, S batches, B rows of a batch, C classes.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from mlcl.data.class_tree import Groups, Indices

Order = Callable[[np.random.Generator], NDArray[np.int64]]
"""Draws the rows of an epoch, as many as there are rows, batch after batch."""
DRAWS = 8
"""Draws by classes for a batch; what they leave open is filled with rows of any class."""


class EpochSampler:
    """Batches of row indices for one of `world_size` processes.

    The rows of epoch e are drawn from (seed, e) alone: a permutation of all rows, or what `order` draws. Its
    b-th batch is the b-th run of `batch_size` rows, cut into `world_size` contiguous slices of near-equal
    length, one a rank: the slices of all ranks, in rank order, are the batch of a single process.

    The last, smaller batch is dropped where `drop_last` says so, and always where it has fewer rows than
    max(world_size, 2): each rank needs a row, and one row alone has nothing to contrast with.

    Raises ValueError for a batch size below max(world_size, 2), a rank outside the world, and too few rows
    for one batch.
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
    ) -> None:
        if not 0 <= rank < world_size:
            raise ValueError(f"rank {rank} outside 0..{world_size - 1}")
        least = max(world_size, 2)
        if batch_size < least:
            raise ValueError(f"batch_size {batch_size} below {least}")
        self.rows, self.batch_size, self.seed = rows, batch_size, seed
        self.rank, self.world_size, self.order = rank, world_size, order
        whole, rest = divmod(rows, batch_size)
        self.steps_per_epoch = whole + (rest >= least and not drop_last)
        if self.steps_per_epoch == 0:
            raise ValueError(f"{rows} rows make no batch of {batch_size}")

    def batches(self, epoch: int, start_step: int = 0) -> Iterator[Tensor]:
        """This rank's slice (int64) of every batch of an epoch, from `start_step` on."""
        rows = self._rows(epoch)
        for step in range(start_step, self.steps_per_epoch):
            batch = rows[step * self.batch_size : (step + 1) * self.batch_size]
            yield torch.tensor_split(batch, self.world_size)[self.rank]

    def _rows(self, epoch: int) -> Tensor:
        # A seed of its own for every (seed, epoch); a sum would repeat epochs between neighbouring seeds.
        seeds = np.random.SeedSequence([self.seed, epoch])
        if self.order is not None:
            return torch.from_numpy(self.order(np.random.default_rng(seeds)))
        mixed = seeds.generate_state(1, np.uint64)[0]
        generator = torch.Generator().manual_seed(int(mixed >> np.uint64(1)))
        return torch.randperm(self.rows, generator=generator)


class _Order(ABC):
    def __init__(self, rows: int, batch_size: int) -> None:
        self.rows, self.batch_size = rows, min(batch_size, rows)

    def __call__(self, rng: np.random.Generator) -> Indices:
        """The rows of an epoch, drawn with `rng`. The last, smaller batch is the beginning of a whole one."""
        batches = -(-self.rows // self.batch_size)
        rows_SB = _first_distinct(self._draw(batches, 1.0, rng), self.batch_size)
        draws = 1
        while len(short := np.flatnonzero(rows_SB[:, -1] < 0)):
            open_share = float((rows_SB[short] < 0).sum(axis=1).max()) / self.batch_size
            more = self._draw(len(short), open_share, rng) if draws < DRAWS else self._any(len(short), rng)
            rows_SB[short] = _first_distinct(np.hstack([rows_SB[short], more]), self.batch_size)
            draws += 1
        # A micro-batch and a worker's slice are runs of a batch: they should hold all of its classes.
        key_SB = rng.random(rows_SB.shape)
        key_SB.reshape(-1)[self.rows :] = 1
        shuffled_SB = np.take_along_axis(rows_SB, np.argsort(key_SB, axis=1), axis=1)
        return shuffled_SB.reshape(-1)[: self.rows]

    def _any(self, batches: int, rng: np.random.Generator) -> Indices:
        return rng.integers(self.rows, size=(batches, self.batch_size))

    @abstractmethod
    def _draw(self, batches: int, share: float, rng: np.random.Generator) -> Indices:
        """Rows (S, at least share * B) for batches; repeats and -1 are passed over."""


class Balanced(_Order):
    """Rows of classes in proportion to (rows of the class)^power.

    Of S B draws a class c gets S B n_c^power / sum_d n_d^power, rounded up or down by chance, in random
    order; each takes a row of the class, all of them before any again. So with power 0 a row on several
    paths is drawn in proportion to the sum of 1 / n_c over its classes. A row that its batch has already
    is replaced by another draw.
    Source: for single labels Kang et al. 2020, Eq. 1 (0: class-balanced, 1/2: square root, 1: as they come).
    """

    def __init__(self, classes: Groups, rows: int, batch_size: int, power: float = 0.0) -> None:
        super().__init__(rows, batch_size)
        self.classes = classes
        weights = classes.sizes**power
        self.shares = weights / weights.sum()

    def _draw(self, batches: int, share: float, rng: np.random.Generator) -> Indices:
        total = batches * int(np.ceil(share * self.batch_size))
        bounds = np.floor(np.cumsum(self.shares) * total + rng.random()).astype(np.int64)
        bounds[-1] = total
        visits = rng.permutation(np.repeat(np.arange(len(bounds)), np.diff(bounds, prepend=0)))
        return self.classes.draw(visits, 1, rng).reshape(batches, -1)


class Grouped(_Order):
    """`k` rows of each of some classes; on a tree, `branches` classes below each class of a coarser level.

    A batch has B / (k branches^(H - 1)) classes of the coarsest level. All classes of it come up before any
    again, whatever their size, and so do the classes below a class and the rows of a finest class. Where
    the data set has fewer classes than a batch would take, each gives more; where a class has fewer rows or
    classes below it, it gives what it has, and further classes complete the batch.

    H = 1 is P x K sampling (Hermans et al. 2017). For H > 1 an anchor has positives at every level, as
    Zhang et al. 2022 ask for; how the batch is drawn is ours.
    """

    def __init__(
        self, levels: tuple[Groups, ...], rows: int, batch_size: int, k: int, branches: int = 2
    ) -> None:
        super().__init__(rows, batch_size)
        self.levels = levels
        self.counts: list[int] = []
        have = 1
        finest = len(levels) - 2
        for depth, level in enumerate(levels[:-1]):
            wanted = self.batch_size // (k * branches ** (finest - depth))
            self.counts.append(max(1, wanted // have))
            have = min(have * self.counts[-1], len(level.members))
        self.counts.append(max(k, self.batch_size // have))

    def _draw(self, batches: int, share: float, rng: np.random.Generator) -> Indices:
        first, *below = self.counts
        drawn = np.zeros(batches, dtype=np.int64)
        for level, count in zip(self.levels, (int(np.ceil(share * first)), *below), strict=True):
            drawn = level.draw(drawn.reshape(-1), count, rng)
        return drawn.reshape(batches, -1)


def _first_distinct(rows_SM: Indices, size: int) -> Indices:
    """The first `size` distinct rows of each batch, in their order; -1 fills up."""
    order = np.argsort(rows_SM, axis=1, kind="stable")
    ordered = np.take_along_axis(rows_SM, order, axis=1)
    new = np.diff(ordered, axis=1, prepend=-1) > 0
    keep = np.empty_like(new)
    np.put_along_axis(keep, order, new, axis=1)
    front = np.argsort(~keep, axis=1, kind="stable")[:, :size]
    kept = np.where(np.take_along_axis(keep, front, axis=1), np.take_along_axis(rows_SM, front, axis=1), -1)
    missing = size - kept.shape[1]
    return np.pad(kept, ((0, 0), (0, missing)), constant_values=-1) if missing > 0 else kept
