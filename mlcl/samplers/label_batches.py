"""`LabelBatchSampler`: batches for a DataLoader, drawn by classes, lists of labels, or paths."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from functools import partial
from numbers import Number
from typing import Any, Literal, get_args

import numpy as np
import torch.distributed as dist
from torch.utils.data import Sampler

from mlcl.samplers.epochs import Balanced, EpochSampler, Grouped, Groups, Indices, Order, tree

OrderName = Literal["random", "balanced", "pk"]


class LabelBatchSampler(Sampler[list[int]]):
    """Batches of row numbers, for `DataLoader(dataset, batch_sampler=...)`.

    The batches of an epoch depend on the seed and the epoch alone, not on the number of processes: each
    process gets its slice of every batch. Each iteration yields the next epoch; `set_epoch` chooses another.

    Args:
        labels: One label for each row: a class (a number or text), a list or set of labels, which may be
            empty, or a path (a tuple, the coarsest class first, of one length for all rows). A tensor or
            array (N,) has classes, one (N, L) of 0 and 1 has sets of labels. Rows without a label form
            a class of their own, and so do those of the class -1.
        batch_size: The number of rows in a batch, of all processes together.
        order: `random` shuffles the rows. `balanced` draws each class equally often, see `Balanced`. `pk`
            draws some classes for a batch and `k` rows of each, so that every anchor with a label has
            positives, see `Grouped`; for paths it draws classes below classes.
        k: The rows of a class in a batch, for `pk`.
        power: Classes are drawn in proportion to (rows of the class)^power, for `balanced`.
        branches: The classes below each class of a path, for `pk`.
        seed: The seed of all epochs.
        drop_last: Whether a smaller last batch is left out.
        rank: The number of this process; by default that of torch.distributed, if it is initialised when an
            iteration begins.
        world_size: The number of processes; by default, like `rank`, that of torch.distributed.

    Raises:
        ValueError: For labels of several kinds, multi-hot rows as lists, paths of different lengths, an
            unknown order, `k` or `branches` below 1, and a batch size that fits neither rows nor processes.

    Example:
        >>> sampler = LabelBatchSampler([["a"], ["a", "b"], ["b"], ["a"]], batch_size=2, order="pk", k=2)
        >>> sorted(len(batch) for batch in sampler)
        [2, 2]
    """

    def __init__(
        self,
        labels: Any,
        batch_size: int,
        *,
        order: OrderName = "pk",
        k: int = 2,
        power: float = 0.0,
        branches: int = 2,
        seed: int = 0,
        drop_last: bool = False,
        rank: int | None = None,
        world_size: int | None = None,
    ) -> None:
        if order not in get_args(OrderName):
            raise ValueError(f"order {order!r} is none of {', '.join(get_args(OrderName))}")
        if k < 1 or branches < 1:
            raise ValueError(f"k {k} and branches {branches} must be at least 1")
        rows = _list_labels(labels)
        draw: Order | None = None
        if order != "random":
            levels = _build_levels(rows)
            if order == "pk":
                draw = Grouped(levels, len(rows), batch_size, k, branches)
            else:
                draw = Balanced(levels[-1], len(rows), batch_size, power)
        self._rank, self._world_size = rank, world_size
        self._build_sampler = partial(
            EpochSampler, len(rows), batch_size, seed, drop_last=drop_last, order=draw
        )
        self._rank_sampler()
        self.epoch = 0

    @property
    def sampler(self) -> LabelBatchSampler:
        """The sampler itself: trainers call `set_epoch` of a batch sampler's `sampler`."""
        return self

    def set_epoch(self, epoch: int) -> None:
        """Makes the next iteration yield the batches of this epoch."""
        self.epoch = epoch

    def __iter__(self) -> Iterator[list[int]]:
        epoch, self.epoch = self.epoch, self.epoch + 1
        for batch in self._rank_sampler().batches(epoch):
            yield batch.tolist()

    def __len__(self) -> int:
        return self._rank_sampler().steps_per_epoch

    def _rank_sampler(self) -> EpochSampler:
        # Trainers may initialise torch.distributed after the sampler is built.
        distributed = dist.is_available() and dist.is_initialized()
        rank, world_size = (dist.get_rank(), dist.get_world_size()) if distributed else (0, 1)
        return self._build_sampler(
            rank=rank if self._rank is None else self._rank,
            world_size=world_size if self._world_size is None else self._world_size,
        )


def _list_labels(labels: Any) -> list[Any]:
    """Returns labels as a list; a row of 0 and 1 of an array (N, L) becomes the list of its labels."""
    if hasattr(labels, "lists"):  # LabelRows, which samplers do not import
        return list(labels.lists())
    if hasattr(labels, "columns"):
        raise ValueError("labels of a frame; allowed: one of its columns, or its values, multi-hot (N, L)")
    dims = getattr(labels, "ndim", 1)
    if dims == 1:
        rows = labels.tolist() if hasattr(labels, "tolist") else labels
        return [row.tolist() if getattr(row, "ndim", 1) == 0 else row for row in rows]
    array = np.asarray(labels.tolist())
    if dims != 2:
        raise ValueError(f"labels of shape {array.shape}, not (N,) or (N, L)")
    if not np.isin(array, (0, 1)).all():
        raise ValueError("multi-hot labels (N, L) must be 0 or 1; paths are a list of tuples")
    return [np.flatnonzero(row).tolist() for row in array]


def _build_levels(rows: Sequence[Any]) -> tuple[Groups, ...]:
    """Returns the tree of the classes of all rows, see `tree`."""
    kinds = {_label_kind(labels) for labels in rows}
    if len(kinds) != 1:
        raise ValueError(f"labels of {len(kinds)} kinds: {', '.join(sorted(kinds))}" if kinds else "no rows")
    kind = kinds.pop()
    if kind == "set":
        # Sets are sorted, because the order of a set of texts differs between processes.
        label_lists = [
            sorted(labels, key=repr) if isinstance(labels, (set, frozenset)) else labels for labels in rows
        ]
        if any(len(set(labels)) < len(labels) and set(labels) <= {0, 1} for labels in label_lists):
            raise ValueError("a multi-hot row among lists of labels; allowed: a tensor or array (N, L)")
        pairs = [(row, label) for row, labels in enumerate(label_lists) for label in labels or [None]]
        return tree(
            _number_labels([label for _, label in pairs])[:, None], np.array([row for row, _ in pairs])
        )
    paths = rows if kind == "path" else [(labels,) for labels in rows]
    if len(lengths := {len(path) for path in paths}) != 1:
        raise ValueError(f"paths of {len(lengths)} lengths: {sorted(lengths)}")
    columns = [_number_labels(level) for level in zip(*paths, strict=True)]
    return tree(np.stack(columns, axis=1), np.arange(len(rows)))


def _label_kind(label: Any) -> str:
    if hasattr(label, "ndim"):
        raise ValueError(f"a row of {type(label).__name__}; allowed: a class, a list of labels or a tuple")
    if isinstance(label, tuple):
        return "path"
    return "set" if isinstance(label, (list, set, frozenset)) else "class"


def _number_labels(labels: Sequence[Hashable]) -> Indices:
    """Returns a number for each label; equal labels get equal numbers, as do NaN and None."""
    numbers: dict[Hashable, int] = {}
    keys = (None if isinstance(label, Number) and label != label else label for label in labels)
    return np.array([numbers.setdefault(label, len(numbers)) for label in keys], dtype=np.int64)
