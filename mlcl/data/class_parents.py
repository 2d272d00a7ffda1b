"""The classes above each class of a single-label level of a hierarchy, as the rows tell them.

Shapes: N rows of several splits, K of them with both classes, C classes of the finer level.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, pairwise

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from mlcl.data.dataset import Dataset
from mlcl.data.split import Split
from mlcl.errors import UserError

TELLING = ("train", "validation")
"""The splits whose rows tell the parents; those of the test split never do."""


def class_parents(data: Dataset, labels: str) -> dict[str, Tensor]:
    """For every level above `labels`, the coarsest first, the parent there of each class (C,) int64.

    The rows of training and validation tell it that have both classes, or else that have the class and one
    between whose own parent is told; -1 where no row does. Empty where `labels` is no level of a hierarchy of
    single-label spaces. Raises UserError for a class with two parents.
    """
    rows, found = _Rows.of(data, TELLING), dict[str, Tensor]()
    for space in data.info.label_spaces.values():
        if labels in space.levels and data.info.space(labels).kind == "single":
            found |= rows.parents(space.levels[: space.levels.index(labels) + 1])
    return found


def check_class_parents(data: Dataset, splits: Iterable[str] = TELLING) -> list[str]:
    """A line for each single-label level that is missing in rows with a class of the next finer one.

    Raises UserError for the first row of `splits` whose class has another parent than in a row before.
    """
    rows, notes = _Rows.of(data, splits), []
    for space in data.info.label_spaces.values():
        if not space.parents:
            for coarse, fine in combinations(space.levels, 2):
                rows.parent_of(fine, coarse)
            notes += [_blanks(data, rows, *levels) for levels in pairwise(space.levels)]
    return [note for note in notes if note]


@dataclass(frozen=True)
class _Rows:
    """The rows of some splits, one after the other."""

    data: Dataset
    splits: Sequence[Split]

    @classmethod
    def of(cls, data: Dataset, splits: Iterable[str]) -> _Rows:
        present = {str(name) for name, rows in data.info.rows.items() if rows}
        return cls(data, [data.split(name) for name in splits if name in present])

    def labels(self, name: str) -> NDArray[np.int64]:
        """The classes (N,) of the rows, -1 missing."""
        found = [split.labels(name) for split in self.splits]
        return np.concatenate([np.empty(0, np.int64), *map(np.asarray, found)])

    def parents(self, levels: Sequence[str]) -> dict[str, Tensor]:
        """The parents of the classes of the last of `levels` in each other one."""
        *above, finest = levels
        found = {finest: torch.arange(self.data.info.space(finest).n_classes)}
        for level in reversed(above):
            parent_C = torch.full_like(found[finest], -1)
            for finer, class_C in found.items():
                told_C = self.parent_of(finer, level)[class_C]
                parent_C = torch.where((parent_C < 0) & (class_C >= 0), told_C, parent_C)
            found[level] = parent_C
        return {level: found[level] for level in above}

    def parent_of(self, fine: str, coarse: str) -> Tensor:
        """The class of `coarse` in the rows of each class of `fine` (C,), -1 where no row has both.

        Raises UserError for the first row that has another one than a row before.
        """
        fine_N, coarse_N = self.labels(fine), self.labels(coarse)
        row_K = np.flatnonzero((fine_N >= 0) & (coarse_N >= 0))
        class_K, above_K = fine_N[row_K], coarse_N[row_K]
        parent_C = np.full(self.data.info.space(fine).n_classes, -1)
        classes, first = np.unique(class_K, return_index=True)
        parent_C[classes] = above_K[first]
        for at in np.flatnonzero(above_K != parent_C[class_K])[:1]:
            own, count = class_K[at], np.bincount(above_K[class_K == class_K[at]])
            rows = {int(parent): int(count[parent]) for parent in (parent_C[own], above_K[at])}
            raise self._two_parents(int(row_K[at]), fine, int(own), coarse, rows)
        return torch.from_numpy(parent_C)

    def _two_parents(self, row: int, fine: str, own: int, coarse: str, rows: Mapping[int, int]) -> UserError:
        """The error for a row of class `own`; `rows` has the numbers of this class's rows by parent."""
        lengths = np.cumsum([len(split) for split in self.splits])
        number = int(np.searchsorted(lengths, row, side="right"))
        split, name = self.splits[number], self.data.info.space(fine).classes[own]
        row -= int(lengths[number]) - len(split)
        file, place = split.place(row)
        above = {self.data.info.space(coarse).classes[parent]: count for parent, count in rows.items()}
        paths = " and ".join(f"{parent}/{name}" for parent in above)
        return UserError(
            f"{name} has a second parent in {coarse} at row {place}, id {split.ids[row]}",
            file=file,
            key=fine,
            found=[f"{parent} ({count} rows)" for parent, count in above.items()],
            allowed=f"one parent; classes of several need names of their own, such as whole paths: {paths}",
        )


def _blanks(data: Dataset, rows: _Rows, coarse: str, fine: str) -> str:
    """Notes on rows with a class of `fine` and none of `coarse`; empty where there are none."""
    fine_N = rows.labels(fine)
    class_K = fine_N[(fine_N >= 0) & (rows.labels(coarse) < 0)]
    if not len(class_K):
        return ""
    untold = int((class_parents(data, fine)[coarse][np.unique(class_K)] < 0).sum())
    told = f"no row tells that of {untold} of the classes" if untold else "the others tell its parent"
    return f"{coarse}: {len(class_K)} rows have a class of {fine} without one of {coarse}; {told}"
