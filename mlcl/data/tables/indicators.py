"""Labels and ratings from numbers: columns and lists of 0 and 1, shares with a threshold, rating columns.

Shapes: N rows, L labels.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from mlcl.data.tables.label_columns import Column, Labels, texts_of
from mlcl.data.tables.notation import FLAGS, MISSING, Notation, number_of
from mlcl.data.tables.options import AspectColumns, MultiLabelColumn
from mlcl.data.tables.rows import Rows
from mlcl.errors import UserError

ABSENT, BLANK, UNCERTAIN = 0, -1, -2
"""States of a cell of 0 and 1 beside 1, present."""


def from_columns(rows: Rows, label: MultiLabelColumn) -> Labels:
    """Labels of columns that hold 0, 1 or a share, one column a class."""
    names = list(label.wanted(rows.tables[0].columns).values())
    return _indicated(rows, label, names, [texts_of(rows, name) for name in names], names)


def from_lists(column: Column, label: MultiLabelColumn, notation: Notation, given: Sequence[str]) -> Labels:
    """Labels of lists, or of texts with separators, that hold 0, 1 or a share for each class."""
    lists = {
        cell: () if cell in MISSING else tuple(part.strip() for part in notation.labels(cell))
        for cell in column.first
    }
    size = len(given) if given else max(map(len, lists.values()))
    for cell, its in lists.items():
        if len(its) != size and cell not in MISSING:
            more = " classes are named" if given else " numbers, as the longest has"
            raise column.error(cell, "a number for each class, but not as many", len(its), f"{size}{more}")
    names = tuple(given) or tuple(map(str, range(size)))
    texts = [[its[i] if (its := lists[cell]) else "" for cell in column.of_row] for i in range(size)]
    made = _indicated(column.rows, label, [column.name] * size, texts, names)
    numbered = "" if given else f", numbered 0 to {size - 1}: name them with classes"
    said = f"{column.name}: {size} numbers a row are 0 and 1 for each of {size} classes{numbered}"
    return Labels(made.kind, made.names, made.classes, (said, *made.notes), made.unknown, made.left_out)


def _indicated(
    rows: Rows, label: MultiLabelColumn, columns: Sequence[str], texts: Sequence[Sequence[str]],
    names: Sequence[str],
) -> Labels:  # fmt: skip
    """Labels from a cell of 0 and 1 for each class: `texts` (L, N)."""
    states = [_states(rows, name, its, label.threshold) for name, its in zip(columns, texts, strict=True)]
    state_NL = np.stack(states, axis=1)
    file, key = rows.tables[0].path, columns[0]
    if not (state_NL == 1).any():
        raise UserError("no row has a label", file=file, key=key)
    unsure_NL, left_out, notes = np.zeros_like(state_NL, dtype=bool), set[int](), list[str]()
    for value, option, what in ((BLANK, "missing", "missing"), (UNCERTAIN, "uncertain", "-1, uncertain")):
        here_NL = state_NL == value
        if not here_NL.any():
            continue
        treatment = getattr(label, option)
        if treatment is None and (value == UNCERTAIN or (state_NL == ABSENT).any()):
            row, at = (int(its[0]) for its in np.nonzero(here_NL))
            problem = f"{here_NL.sum():,} of {here_NL.size:,} cells of 0 and 1 are {what}, the first"
            allowed = f"{option} negative, leave_out or ignore"
            raise rows.error(row, problem, columns[at], allowed=allowed)
        rows_left = int(here_NL.any(1).sum())
        words = {
            "leave_out": f"their {rows_left:,} rows are left out",
            "ignore": "loss and metrics leave them out",
        }
        count = f"{here_NL.sum():,} of {here_NL.size:,} cells ({here_NL.mean():.1%})"
        done = words.get(treatment or "", "no label" if treatment else "no label, as no cell has 0")
        notes.append(f"{label.column or 'labels'}: {count} are {what}: {done}")
        left_out |= set(np.flatnonzero(here_NL.any(1)).tolist()) if treatment == "leave_out" else set()
        unsure_NL |= here_NL & (treatment == "ignore")
    if label.threshold is not None:
        notes.append(f"{label.column or 'labels'}: shares from {label.threshold:g} on are labels")
    unknown = _rows_of(unsure_NL, names) if unsure_NL.any() else None
    order = tuple(names)
    return Labels(
        "multi_label", _rows_of(state_NL == 1, names), order, tuple(notes), unknown, frozenset(left_out)
    )


def _rows_of(has_NL: np.ndarray[Any, Any], names: Sequence[str]) -> list[tuple[str, ...]]:
    patterns, number_N = np.unique(has_NL, axis=0, return_inverse=True)
    labels = [tuple(names[i] for i in np.flatnonzero(row).tolist()) for row in patterns]
    return [labels[number] for number in number_N.ravel().tolist()]


def _states(
    rows: Rows, column: str, texts: Sequence[str], threshold: float | None
) -> np.ndarray[Any, np.dtype[np.int8]]:
    """1, ABSENT, BLANK or UNCERTAIN for each row. Raises UserError for another value."""
    number_N, cells = pd.factorize(np.asarray(texts, dtype=object))
    states = []
    for at, text in enumerate(cells):
        state, number = state_of(text), number_of(text)
        if threshold is not None and number is not None and 0 <= number <= 1:
            state = int(number >= threshold)
        if state is None:
            row = int(np.flatnonzero(number_N == at)[0])
            share = number is not None and 0 < number < 1
            problem = "a share: say from which on it is a label" if share else "neither 0 nor 1"
            allowed = "threshold 0.5, or another" if share else ["1", "0", "true", "false", "blank", "-1"]
            raise rows.error(row, problem, column, text, allowed)
        states.append(state)
    return np.asarray(states, dtype=np.int8)[number_N]


def state_of(text: str) -> int | None:
    """State of a cell of 0 and 1: 1, ABSENT, BLANK or UNCERTAIN; None for another cell."""
    if text in MISSING:
        return BLANK
    if text.lower() in FLAGS:
        return int(FLAGS[text.lower()])
    return {0.0: ABSENT, 1.0: 1, -1.0: UNCERTAIN}.get(number_of(text))  # type: ignore[arg-type]


def read_ratings(rows: Rows, label: AspectColumns) -> list[list[float]]:
    """The ratings of the aspects of every row; 0 stands for a missing one. Raises UserError for no rating."""
    columns = list(label.wanted(rows.tables[0].columns).values())
    found = []
    for column in columns:
        texts = texts_of(rows, column)
        values = {text: 0.0 if text in MISSING else number_of(text) for text in dict.fromkeys(texts)}
        for text, value in values.items():
            if value is None or (value != 0 and value not in label.scale):
                allowed = [f"{step:g}" for step in label.scale]
                raise rows.error(texts.index(text), "not a rating", column, text, allowed)
        found.append([values[text] for text in texts])
    return [list(row) for row in zip(*found, strict=True)]
