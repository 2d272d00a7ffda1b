"""Parents of classes in a hierarchy, from a file or from the rows, and checks of the paths of all rows.

Shapes: N rows of several splits, K of them with both classes, C classes of the finer level, E stored entries.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, pairwise
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from mlcl.data.columns import parent_rows
from mlcl.data.dataset import Dataset
from mlcl.data.format import LabelSpace
from mlcl.data.split import Split
from mlcl.errors import UserError
from mlcl.labels import LabelRows

Classes = Sequence[Sequence[int]]
"""The class indices of each row."""

Pairs = Iterable[tuple[str, str]]
"""Pairs of class names: a parent, and its child at the next finer level."""


def hierarchy_of(
    pairs: Sequence[Pairs],
    levels: Sequence[str],
    spaces: Mapping[str, LabelSpace],
    file: Path,
    key: str | None = None,
) -> LabelSpace:
    """Builds the hierarchy of `levels`, coarse to fine, from (parent, child) pairs of neighbouring levels.

    Raises UserError with `file` and `key` for a class with two parents, or with none at the coarser level.
    """
    parents = []
    for (coarse, fine), level_pairs in zip(pairwise(levels), pairs, strict=True):
        index = {name: i for i, name in enumerate(spaces[coarse].classes)}
        parent_of: dict[str, str] = {}
        for parent, name in level_pairs:
            if parent_of.setdefault(name, parent) != parent:
                problem = f"{name} of {fine} has two parents in {coarse}"
                raise UserError(problem, file=file, key=key, found=[parent_of[name], parent])
        for name in spaces[fine].classes:
            if parent_of.get(name) not in index:
                problem = f"{name} of {fine} has no parent in {coarse}"
                raise UserError(problem, file=file, key=key, found=parent_of.get(name), allowed=list(index))
        parents.append(tuple(index[parent_of[name]] for name in spaces[fine].classes))
    return LabelSpace(kind="hierarchy", levels=tuple(levels), parents=tuple(parents))


def pairs_of_paths(paths: Sequence[Sequence[str]]) -> list[Pairs]:
    """Returns, for each two neighbouring levels of paths (coarse to fine), the (parent, child) pairs."""
    return list(zip(*map(pairwise, paths), strict=True))


def paths_in_file(file: Path, levels: Sequence[str], classes: Iterable[str]) -> list[list[str]]:
    """Reads the path of each finest class from a JSON file `{finest class: {level: class}}`.

    Raises UserError for a file of another form, and for a class or a level that the file lacks.
    """
    try:
        tree = json.loads(file.read_text(encoding="utf-8"))
        return [[*(str(tree[name][level]) for level in levels[:-1]), name] for name in classes]
    except KeyError as error:
        problem = "has no such class, or not its class at each level"
        raise UserError(problem, file=file, found=error.args[0], allowed=list(levels[:-1])) from None
    except (OSError, ValueError, RecursionError, TypeError) as error:
        problem = "not JSON that says for each finest class its class at each level"
        raise UserError(problem, file=file, found=error) from None


def pairs_in_rows(fine_rows: Classes, coarse_rows: Classes, fine: LabelSpace, coarse: LabelSpace) -> Pairs:
    """Yields (parent, child) pairs: the parent is the only coarse class that all rows of the child have."""
    candidates_of_label: dict[int, set[int]] = {}
    for fine_labels, coarse_labels in zip(fine_rows, coarse_rows, strict=True):
        for label in fine_labels:
            candidates_of_label.setdefault(label, set(coarse_labels)).intersection_update(coarse_labels)
    for label, candidates in candidates_of_label.items():
        if len(candidates) == 1:
            yield coarse.classes[min(candidates)], fine.classes[label]


PARENT_SPLITS = ("train", "validation")
"""Splits whose rows define the parents; the test split never does."""


def class_parents(data: Dataset, labels: str) -> dict[str, Tensor]:
    """Maps each level above `labels`, coarsest first, to the parent (C,) int64 of each class at that level.

    The parent of a class is read from the training and validation rows that have a class at both levels. If
    no row has both, the parent is found through the levels in between, or else is -1. The result is
    empty unless `labels` is a level of a hierarchy of single-label spaces. Raises UserError for a class with
    two parents.
    """
    split_classes, parents = _SplitClasses.of(data, PARENT_SPLITS), dict[str, Tensor]()
    labels = data.info.own_name(labels)
    for space in data.info.label_spaces.values():
        if labels in space.levels and data.info.space(labels).kind == "single":
            parents |= split_classes.parents(space.levels[: space.levels.index(labels) + 1])
    return parents


def check_class_parents(data: Dataset, splits: Iterable[str] = PARENT_SPLITS) -> list[str]:
    """Returns a note on each single-label level that is missing in rows with a class one level below.

    Raises UserError for the first row of `splits` whose class has another parent than in an earlier row.
    """
    split_classes, notes = _SplitClasses.of(data, splits), []
    for space in data.info.label_spaces.values():
        if not space.parents:
            for coarse, fine in combinations(space.levels, 2):
                split_classes.parent_of(fine, coarse)
            notes += [_note_blanks(data, split_classes, *levels) for levels in pairwise(space.levels)]
    return [note for note in notes if note]


@dataclass(frozen=True)
class _SplitClasses:
    """The rows of several splits, concatenated."""

    data: Dataset
    splits: Sequence[Split]

    @classmethod
    def of(cls, data: Dataset, splits: Iterable[str]) -> _SplitClasses:
        present_splits = {str(name) for name, rows in data.info.rows.items() if rows}
        return cls(data, [data.split(name) for name in splits if name in present_splits])

    def labels(self, name: str) -> NDArray[np.int64]:
        """Returns the class of each row (N,) in a label space; -1 for a missing class."""
        labels = [split.labels(name) for split in self.splits]
        return np.concatenate([np.empty(0, np.int64), *map(np.asarray, labels)])

    def parents(self, levels: Sequence[str]) -> dict[str, Tensor]:
        """Maps each level but the last to the ancestor (C,), or -1, of each class of the last level."""
        *coarser_levels, finest = levels
        ancestors = {finest: torch.arange(self.data.info.space(finest).n_classes)}
        for level in reversed(coarser_levels):
            parent_C = torch.full_like(ancestors[finest], -1)
            for finer, class_C in ancestors.items():
                candidate_C = self.parent_of(finer, level)[class_C]
                parent_C = torch.where((parent_C < 0) & (class_C >= 0), candidate_C, parent_C)
            ancestors[level] = parent_C
        return {level: ancestors[level] for level in coarser_levels}

    def parent_of(self, fine: str, coarse: str) -> Tensor:
        """Returns the parent in `coarse` of each class of `fine` (C,); -1 if no row has both.

        Raises UserError for the first row whose class has another parent than in an earlier row.
        """
        fine_N, coarse_N = self.labels(fine), self.labels(coarse)
        row_K = np.flatnonzero((fine_N >= 0) & (coarse_N >= 0))
        class_K, parent_K = fine_N[row_K], coarse_N[row_K]
        parent_C = np.full(self.data.info.space(fine).n_classes, -1)
        classes, first = np.unique(class_K, return_index=True)
        parent_C[classes] = parent_K[first]
        for conflict in np.flatnonzero(parent_K != parent_C[class_K])[:1]:
            label, sizes = class_K[conflict], np.bincount(parent_K[class_K == class_K[conflict]])
            rows = {int(parent): int(sizes[parent]) for parent in (parent_C[label], parent_K[conflict])}
            raise self._second_parent_error(int(row_K[conflict]), fine, int(label), coarse, rows)
        return torch.from_numpy(parent_C)

    def _second_parent_error(
        self, row: int, fine: str, label: int, coarse: str, rows: Mapping[int, int]
    ) -> UserError:
        """Returns the error for `row`, numbered over all splits; `rows` maps each parent to its row count."""
        lengths = np.cumsum([len(split) for split in self.splits])
        number = int(np.searchsorted(lengths, row, side="right"))
        split, name = self.splits[number], self.data.info.space(fine).classes[label]
        row -= int(lengths[number]) - len(split)
        file, place = split.place(row)
        counts = {self.data.info.space(coarse).classes[parent]: count for parent, count in rows.items()}
        paths = " and ".join(f"{parent}/{name}" for parent in counts)
        return UserError(
            f"{name} has a second parent in {coarse} at row {place}, id {split.ids[row]}",
            file=file,
            key=fine,
            found=[f"{parent} ({count} rows)" for parent, count in counts.items()],
            allowed=f"one parent; classes of several need names of their own, such as whole paths: {paths}",
        )


def _note_blanks(data: Dataset, split_classes: _SplitClasses, coarse: str, fine: str) -> str:
    """Returns a note on rows with a class of `fine` and none of `coarse`; empty if there are none."""
    fine_N = split_classes.labels(fine)
    class_K = fine_N[(fine_N >= 0) & (split_classes.labels(coarse) < 0)]
    if not len(class_K):
        return ""
    orphans = int((class_parents(data, fine)[coarse][np.unique(class_K)] < 0).sum())
    remark = f"no row tells that of {orphans} of the classes" if orphans else "the others tell its parent"
    return f"{coarse}: {len(class_K)} rows have a class of {fine} without one of {coarse}; {remark}"


def check_class_trees(data: Dataset, splits: Iterable[str]) -> list[str]:
    """Returns notes on levels at which paths end early. Raises UserError for a label without its parent."""
    ending_counts = Counter[tuple[str, str]]()
    for split in map(data.split, splits):
        for space in data.info.label_spaces.values():
            for (coarse, fine), parents in zip(pairwise(space.levels), space.parents, strict=False):
                ending_counts[coarse, fine] += _count_ending_rows(split, coarse, fine, parents)
    return [
        f"{coarse}: {rows} rows have a class of it without one of {fine} below"
        for (coarse, fine), rows in ending_counts.items()
        if rows
    ]


def _count_ending_rows(split: Split, coarse: str, fine: str, parents: Sequence[int]) -> int:
    """Counts rows with a coarse label but no child of it. Raises UserError for a label without its parent."""
    fine_rows, coarse_rows = split.labels(fine), split.labels(coarse)
    assert isinstance(fine_rows, LabelRows)
    assert isinstance(coarse_rows, LabelRows)
    required_E = parent_rows(fine_rows, parents, coarse_rows.width).cells().numpy()
    coarse_E = coarse_rows.cells().numpy()
    missing_E = np.setdiff1d(required_E, coarse_E)
    if len(missing_E):
        row, parent = divmod(int(missing_E[0]), coarse_rows.width)
        fine_classes = split.info.space(fine).classes
        child = next(label for label in fine_rows.lists()[row] if parents[label] == parent)
        file, place = split.place(row)
        raise UserError(
            f"label without its parent at row {place}, id {split.ids[row]}",
            file=file,
            key=fine,
            found=fine_classes[child],
            allowed=f"with {split.info.space(coarse).classes[parent]} in {coarse}",
        )
    return len(np.unique(np.setdiff1d(coarse_E, required_E) // coarse_rows.width))
