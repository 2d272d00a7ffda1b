"""Reads label spaces from a table row by row: how the values of its columns become indices and ratings."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from mlcl.data.format import LabelSpace
from mlcl.data.sources.common.label_column import (
    AspectColumns,
    HierarchyOf,
    LabelColumn,
    MultiLabelColumn,
    SingleColumn,
)
from mlcl.errors import UserError, did_you_mean


class LabelReader:
    """Collects one label space row by row; `space` and `values` are right once all rows are in."""

    def __init__(self, name: str, label: LabelColumn, file: Path) -> None:
        self._name, self._label, self._file = name, label, file
        given = label.classes if isinstance(label, SingleColumn | MultiLabelColumn) else None
        self._given = given is not None
        self._index: dict[str, int] = {label_: i for i, label_ in enumerate(given or ())}
        self._rows: list[list[int]] = []
        self._ratings: list[list[float]] = []

    def add(self, place: str, values: Mapping[str, Any]) -> None:
        """Read one row. Raises UserError for a class or a rating that is not allowed."""
        if isinstance(self._label, AspectColumns):
            self._ratings.append(
                [self._rating(place, column, values[column]) for column in self._label.columns]
            )
        elif isinstance(self._label, SingleColumn | MultiLabelColumn):
            self._rows.append(
                [self._class(place, label) for label in self._labels(values[self._label.column])]
            )

    def space(self) -> LabelSpace:
        """The label space."""
        label = self._label
        if isinstance(label, HierarchyOf):
            return LabelSpace(kind="hierarchy", levels=label.levels)
        if isinstance(label, AspectColumns):
            return LabelSpace(kind="aspects", aspects=label.columns, scale=label.scale)
        if not self._index:
            raise UserError("no row has a label", file=self._file, key=label.column)
        return LabelSpace(kind=label.kind, classes=tuple(self._classes()))

    def values(self) -> list[Any] | None:
        """The column of the data set; a hierarchy has none."""
        if isinstance(self._label, HierarchyOf):
            return None
        if isinstance(self._label, AspectColumns):
            return self._ratings
        rows = self.class_rows()
        return [row[0] if row else None for row in rows] if isinstance(self._label, SingleColumn) else rows

    def class_rows(self) -> list[list[int]]:
        """The class indices of every row; none for ratings and hierarchies."""
        order = {label: i for i, label in enumerate(self._classes())}
        final = [order[label] for label in self._index]
        return [[final[c] for c in row] for row in self._rows]

    def _classes(self) -> list[str]:
        return list(self._index) if self._given else _sorted(self._index)

    def _labels(self, value: Any) -> Sequence[str]:
        if isinstance(self._label, MultiLabelColumn):
            parts = value.split(self._label.separator) if isinstance(value, str) else value or ()
        else:
            parts = (value,)
        texts = [_text(part) for part in parts]
        return [text for text in texts if text]

    def _class(self, place: str, label: str) -> int:
        if label not in self._index:
            if self._given:
                key = self._label.wanted()["column"]
                problem = f"unknown class at {place}{did_you_mean(label, self._index)}"
                raise UserError(problem, file=self._file, key=key, found=label, allowed=list(self._index))
            self._index[label] = len(self._index)
        return self._index[label]

    def _rating(self, place: str, column: str, value: Any) -> float:
        assert isinstance(self._label, AspectColumns)
        text = _text(value)
        if not text:
            return 0.0
        try:
            rating = float(text)
        except ValueError:
            rating = math.nan
        if rating != 0 and rating not in self._label.scale:
            scale = [f"{step:g}" for step in self._label.scale]
            raise UserError(
                f"not a rating at {place}", file=self._file, key=column, found=text, allowed=scale
            )
        return rating


def _text(value: Any) -> str:
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return ""
    return f"{value:g}" if isinstance(value, float) else str(value).strip()


def _sorted(labels: Iterable[str]) -> list[str]:
    """By number where all are numbers, so that 10 follows 9."""
    labels = list(labels)
    try:
        return sorted(labels, key=lambda label: (float(label), label))
    except ValueError:
        return sorted(labels)
