"""Tensors of labels from a column of a data set: label lists, paths, or single labels.

Shapes: B rows, L labels, H levels.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from typing import Any, Literal, get_args

import torch
from torch import Tensor

from mlcl.errors import did_you_mean

Labels = Sequence[Hashable]
RowKind = Literal["lists", "paths", "multi_hot"]
"""The meaning of a list in a column of labels."""


class LabelNumbers:
    """A function from the labels of B rows to the tensor that a loss takes.

    Args:
        classes: All labels, in the order of the columns. Label lists (or sets), of any lengths, then become
            multi-hot rows (B, L), and single labels class numbers (B,), of which None becomes -1.
        levels: The classes of each level of a hierarchy, the coarsest level first. Paths, one class for each
            level, then become their numbers (B, H); None in a path is unknown and becomes -1.

    Without `classes` and `levels` the labels must be numbers already: classes, multi-hot rows or paths.

    Raises:
        ValueError: If both are given, a class comes twice or there is none; when called, for an unknown
            label, a multi-hot row among lists, and rows of different kinds or lengths.

    Example:
        >>> LabelNumbers(classes=["music", "sport"])([["sport"], [], ["music", "sport"]]).int().tolist()
        [[0, 1], [0, 0], [1, 1]]
        >>> LabelNumbers(levels=[["art"], ["music", "film"]])([("art", "film"), ("art", None)]).tolist()
        [[0, 1], [0, -1]]
    """

    def __init__(self, classes: Labels | None = None, levels: Sequence[Labels] | None = None) -> None:
        if classes is not None and levels is not None:
            raise ValueError("classes and levels; found: both; allowed: one of them")
        self._classes = None if classes is None else _number_labels(classes, "classes")
        self._levels = None
        if levels is not None:
            self._levels = [_number_labels(level, f"level {depth}") for depth, level in enumerate(levels)]

    def __call__(self, rows: Sequence[Any]) -> Tensor:
        """Returns the labels of B rows as a tensor: multi-hot bool (B, L), or numbers (B,) or (B, H)."""
        values = [row.tolist() if hasattr(row, "tolist") else row for row in rows]
        kinds = {isinstance(row, (list, tuple, set, frozenset)) for row in values}
        if len(kinds) > 1:
            raise ValueError("labels of several kinds; found: lists and single labels; allowed: one kind")
        if self._levels is not None:
            return torch.tensor(
                [self._number_path(row, index) for index, row in enumerate(values)], dtype=torch.int64
            ).view(len(values), len(self._levels))
        if self._classes is None:
            return _to_tensor(values)
        if kinds == {False}:
            numbers = [
                -1 if label is None else _find_number(self._classes, label, index)
                for index, label in enumerate(values)
            ]
            return torch.tensor(numbers)
        y_BL = torch.zeros(len(values), len(self._classes), dtype=torch.bool)
        for index, row in enumerate(values):
            _check_list(row, index)
            y_BL[index, [_find_number(self._classes, label, index) for label in row]] = True
        return y_BL

    def _number_path(self, row: Any, index: int) -> list[int]:
        assert self._levels is not None
        if not isinstance(row, (list, tuple)) or len(row) != len(self._levels):
            raise ValueError(f"path of row {index}; found: {row!r}; allowed: {len(self._levels)} classes")
        pairs = zip(self._levels, row, strict=True)
        return [-1 if label is None else _find_number(numbers, label, index) for numbers, label in pairs]


def sampler_labels(rows: Iterable[Any], kind: RowKind) -> list[Any]:
    """Returns labels as `LabelBatchSampler` takes them, from a column that has lists but no tuples.

    `kind` says what a list is. Raises ValueError for an unknown kind and, with `lists`, for a list that is a
    multi-hot row or contains lists.
    """
    if kind not in get_args(RowKind):
        raise ValueError(f"labels; found: {kind!r}; allowed: {', '.join(get_args(RowKind))}")
    return [
        _sampler_label(row.tolist() if hasattr(row, "tolist") else row, kind, index)
        for index, row in enumerate(rows)
    ]


def _sampler_label(row: Any, kind: RowKind, index: int) -> Any:
    if not isinstance(row, (list, tuple)):
        return row
    if kind == "paths":
        return tuple(row)
    if kind == "multi_hot":
        return [label for label, flag in enumerate(row) if flag]
    _check_list(row, index)
    return list(row)


def _check_list(row: Any, index: int) -> None:
    """Raises ValueError for a list that contains lists, or that looks like a multi-hot row of 0 and 1."""
    if any(isinstance(label, (list, dict, set)) for label in row):
        raise ValueError(f"label list of row {index}; found: {row}; allowed: a list of labels, not of lists")
    if len(set(row)) < len(row) and set(row) <= {0, 1}:
        raise ValueError(
            f"label list of row {index}; found: {row}, a multi-hot row; allowed: a list of labels"
        )


def _number_labels(labels: Labels, name: str) -> dict[Hashable, int]:
    if isinstance(labels, (str, set, frozenset)) or not hasattr(labels, "__iter__"):
        raise ValueError(f"{name} must be a list of labels, in a fixed order; found: {labels!r}")
    items = list(labels)
    numbers = {label: number for number, label in enumerate(items)}
    if len(numbers) < len(items) or not numbers:
        raise ValueError(f"{name} must be distinct labels, at least one; found: {items[:10]}")
    return numbers


def _find_number(numbers: dict[Hashable, int], label: Hashable, index: int) -> int:
    try:
        return numbers[label]
    except (KeyError, TypeError):
        names = [str(name) for name in numbers]
        examples = f"{', '.join(names[:10])}{', ...' if len(names) > 10 else ''}"
        hint = did_you_mean(str(label), names)
        raise ValueError(
            f"unknown label in row {index}; found: {label!r}; allowed: {examples}{hint}"
        ) from None


def _to_tensor(rows: list[Any]) -> Tensor:
    try:
        return torch.tensor(rows)
    except (TypeError, ValueError, RuntimeError):
        raise ValueError(
            f"labels must be numbers, or rows of numbers of one length; found: {rows[:3]}; "
            "allowed otherwise: classes=[...], the labels in the order of the columns, or levels=[...]"
        ) from None
