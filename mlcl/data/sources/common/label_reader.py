"""Reads label spaces from a table row by row: how the values of its columns become indices and ratings."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import Any

from mlcl.data.format import LabelSpace
from mlcl.data.sources.common.label_notation import (
    FLAGS,
    NOTHING,
    SEPARATORS,
    divides,
    form_of,
    items_of,
    joined,
    text_of,
)
from mlcl.data.sources.common.table_options import (
    AspectColumns,
    MultiLabelColumn,
    SingleColumn,
)
from mlcl.data.table_file import Row
from mlcl.errors import UserError, did_you_mean
from mlcl.markup import counted

Cell = str | tuple[str, ...]
"""A text as it stands in the table, or the labels of a list."""


class RatingReader:
    """Collects the ratings of aspects row by row; 0 stands for a missing one."""

    def __init__(self, label: AspectColumns) -> None:
        self._label = label
        self.values: list[list[float]] = []

    def add(self, row: Row) -> None:
        """Read one row. Raises UserError for a value that is no rating."""
        self.values.append([_rating(row, column, self._label.scale) for column in self._label.columns])

    @property
    def space(self) -> LabelSpace:
        """The label space."""
        return LabelSpace(kind="aspects", aspects=self._label.columns, scale=self._label.scale)


class ClassReader:
    """Collects the classes of one label space row by row; what it gives is right once all rows are in.

    A notation is recognised over the whole column or refused: then what gives labels raises UserError with
    the first row that is not clear.
    """

    def __init__(self, label: SingleColumn | MultiLabelColumn) -> None:
        self._label = label
        self._column = label.column or ""
        self._wide = None if isinstance(label, SingleColumn) else label.columns
        self._given = label.classes or self._wide
        self._first: dict[Cell, Row] = {}
        self._number: dict[Cell, int] = {}
        self._rows: list[int] = []

    def add(self, row: Row) -> None:
        """Read one row. Raises UserError for a value that is no label."""
        cell = self._cell(row)
        self._rows.append(self._number.setdefault(cell, len(self._number)))
        if cell not in self._first:
            kept = {name: row.values.get(name) for name in self._label.wanted().values()}
            self._first[cell] = row._replace(values=kept)

    @property
    def space(self) -> LabelSpace:
        """The label space."""
        return LabelSpace(kind=self._label.kind, classes=self._classes)

    @property
    def values(self) -> list[Any]:
        """The column of the data set."""
        rows = self.class_rows
        return [row[0] if row else None for row in rows] if isinstance(self._label, SingleColumn) else rows

    @cached_property
    def class_rows(self) -> list[list[int]]:
        """The class indices of every row."""
        index = {name: i for i, name in enumerate(self._classes)}
        known = [[index[name] for name in labels] for labels in self._labels.values()]
        return [known[cell] for cell in self._rows]

    def notes(self) -> list[str]:
        """What was recognised beyond the given options."""
        if self._wide:
            return []
        notes = []
        if isinstance(self._label, MultiLabelColumn) and self._separator and not self._label.separator:
            notes.append(f"{self._column}: labels are divided at {self._separator}")
        cells = list(self._number)
        texts = dict.fromkeys(cell for cell in cells if isinstance(cell, str))
        if isinstance(self._label, SingleColumn) and (whole := joined(texts, " ")):
            notes.append(f'{self._column}: "{whole}" is one class, and so is each of its words')
        count = Counter(cells[number] for number in self._rows)
        nothing = [
            cell for cell in cells if isinstance(cell, str) and cell in NOTHING - set(self._given or ())
        ]
        notes += [f'{self._column}: "{cell}" is no label ({counted(count[cell], "row")})' for cell in nothing]
        return notes

    @cached_property
    def _classes(self) -> tuple[str, ...]:
        found = dict.fromkeys(label for labels in self._labels.values() for label in labels)
        if not found:
            column = self._column or self._label.wanted()["columns.0"]
            raise UserError("no row has a label", file=next(iter(self._first.values())).file, key=column)
        return self._given or tuple(_sorted(found))

    @cached_property
    def _labels(self) -> dict[Cell, tuple[str, ...]]:
        """The labels of each distinct cell, in the order in which the cells occur."""
        found = {cell: self._labels_of(cell) for cell in self._first}
        spelt: dict[str, tuple[str, Cell]] = {}
        for cell, labels in found.items():
            for label in labels:
                if self._given:
                    self._check_known(label, cell)
                    continue
                other, there = spelt.setdefault(form_of(label), (label, cell))
                if other != label:
                    raise self._first[cell].error(
                        "a class is spelt in two ways", self._column, [other, label],
                        "one of them, or both named in classes", f" and {self._first[there].place}",
                    )  # fmt: skip
        return found

    def _check_known(self, label: str, cell: Cell) -> None:
        assert self._given is not None
        if label not in self._given:
            hint = did_you_mean(label, self._given)
            raise self._first[cell].error("unknown class", self._column, label, list(self._given), hint)

    def _labels_of(self, cell: Cell) -> tuple[str, ...]:
        if isinstance(cell, tuple):
            parts: Iterable[str] = cell
        elif self._given and cell in self._given:
            parts = (cell,)
        else:
            parts = cell.split(self._separator) if self._separator else (cell,)
        nothing = NOTHING - set(self._given or ()) | {""}
        labels = tuple(text for part in parts if (text := part.strip()) not in nothing)
        if isinstance(self._label, SingleColumn) and len(labels) > 1:
            raise self._first[cell].error("several labels", self._column, labels, "one, or kind: multi_label")
        return labels

    @cached_property
    def _separator(self) -> str | None:
        """What stands between the labels of a text. Raises UserError where that is not clear."""
        if isinstance(self._label, MultiLabelColumn) and self._label.separator:
            return self._label.separator
        cells = [cell for cell in self._first if isinstance(cell, str) and cell not in (self._given or ())]
        found = [sign for sign in SEPARATORS if any(sign in cell for cell in cells)]
        if isinstance(self._label, SingleColumn):
            wrong = [sign for sign in found if sign in ";|" or joined(set(cells), sign)]
            if wrong and not self._given:
                raise self._unclear(
                    cells, wrong[0], "kind: multi_label, or classes=[...] that names it whole"
                )
            return None
        if not found and divides(cells, " ") and not self._given:
            raise self._unclear(cells, " ", "separator=' ', or another one where no blank divides labels")
        if len(found) > 1 or (found == [","] and not divides(cells, ",")):
            raise self._unclear(cells, found[-1], [f"separator='{sign}'" for sign in found])
        return found[0] if found else None

    def _unclear(self, cells: Sequence[str], sign: str, allowed: object) -> UserError:
        cell = next(cell for cell in cells if sign in cell)
        return self._first[cell].error("one label or several", self._column, cell, allowed, ": name it")

    def _cell(self, row: Row) -> Cell:
        if self._wide:
            return tuple(column for column in self._wide if _flag(row, column))
        value = row.values.get(self._column)
        try:
            if isinstance(value, list | tuple):
                return tuple(map(text_of, value))
            text = text_of(value)
            listed = None if text in (self._given or ()) else items_of(text)
        except ValueError as error:
            raise row.error(str(error), self._column, value) from None
        return text if listed is None else tuple(listed)


def _text(row: Row, column: str) -> str:
    try:
        return text_of(row.values.get(column))
    except ValueError as error:
        raise row.error(str(error), column) from None


def _flag(row: Row, column: str) -> bool:
    text = _text(row, column).lower().removesuffix(".0")
    if text not in FLAGS:
        raise row.error("neither 0 nor 1", column, row.values[column], [flag for flag in FLAGS if flag])
    return FLAGS[text]


def _rating(row: Row, column: str, scale: Sequence[float]) -> float:
    text = _text(row, column)
    if not text or text in NOTHING:
        return 0.0
    try:
        rating = float(text)
    except ValueError:
        rating = math.nan
    if rating != 0 and rating not in scale:
        raise row.error("not a rating", column, text, [f"{step:g}" for step in scale])
    return rating


def _sorted(labels: Iterable[str]) -> list[str]:
    """By number where all are numbers, so that 10 follows 9."""
    labels = list(labels)
    try:
        return sorted(labels, key=lambda label: (float(label), label))
    except ValueError:
        return sorted(labels)
