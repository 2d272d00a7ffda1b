"""From the columns of a table to label spaces: what each row has, and what is to be said of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np
import pandas as pd

from mlcl.data.format import LabelSpace
from mlcl.data.tables.notation import (
    FLAGS,
    MISSING,
    SEPARATORS,
    Cell,
    Notation,
    cell_of,
    form_of,
    joined,
    number_of,
    recognise,
    text_of,
)
from mlcl.data.tables.options import AspectColumns, MultiLabelColumn, SingleColumn
from mlcl.data.tables.rows import Rows
from mlcl.errors import UserError, did_you_mean
from mlcl.markup import counted

ABSENT, BLANK, UNCERTAIN = 0, -1, -2
"""What a cell of 0 and 1 says beside 1, present."""


@dataclass(frozen=True)
class Labels:
    """The labels of every row by name. `classes` is their order where it is given.

    `unknown`: labels of which a row does not tell whether it has them. `left_out`: rows to leave out.
    """

    kind: Literal["single", "multi_label"]
    names: Sequence[tuple[str, ...]]
    classes: tuple[str, ...] | None = None
    notes: tuple[str, ...] = ()
    unknown: Sequence[tuple[str, ...]] | None = None
    left_out: frozenset[int] = field(default_factory=frozenset)

    def space(self) -> LabelSpace:
        """The label space."""
        classes = self.classes or tuple(_sorted({name for row in self.names for name in row}))
        if self.unknown is not None:
            return LabelSpace(kind=self.kind, classes=classes, unknown=True)
        return LabelSpace(kind=self.kind, classes=classes)

    def indices(self, space: LabelSpace) -> list[list[int]]:
        """The class indices of every row."""
        return _indices(self.names, space)

    def only(self, rows: Sequence[int]) -> Labels:
        """The labels of some of the rows."""
        unknown = None if self.unknown is None else [self.unknown[row] for row in rows]
        names = [self.names[row] for row in rows]
        return replace(self, names=names, unknown=unknown, left_out=frozenset())

    def columns(self, name: str, space: LabelSpace) -> dict[str, Any]:
        """The columns of the data set for the label space `name`."""
        rows = self.indices(space)
        if self.kind == "single":
            return {name: [row[0] if row else None for row in rows]}
        unknown = {} if self.unknown is None else {f"{name}.unknown": _indices(self.unknown, space)}
        return {name: rows, **unknown}


def _indices(names: Sequence[tuple[str, ...]], space: LabelSpace) -> list[list[int]]:
    index = {name: i for i, name in enumerate(space.classes)}
    known = {labels: [index[name] for name in labels] for labels in set(names)}
    return [known[labels] for labels in names]


@dataclass(frozen=True)
class Column:
    """A column whose values are texts or lists: the distinct cells, with the first row of each."""

    name: str
    rows: Rows
    first: Mapping[Cell, int]
    of_row: Sequence[Cell]
    notes: tuple[str, ...] = ()

    @classmethod
    def of(cls, rows: Rows, name: str, given: Collection[str] = ()) -> Column:
        """The cells of a column; `given` are names of classes, which are no lists.

        Raises UserError for a value that is neither a text, a number nor a list of these.
        """
        names = [table.names.get(name, ()) for table in rows.tables]
        first: dict[Cell, int] = {}
        known: dict[Any, Cell] = {}
        other: dict[str, str] = {}
        of_row = []
        for row, value in enumerate(rows.frame[name]):
            key = (type(value), value) if isinstance(value, str | int | float) else None
            cell = known.get(key) if key is not None else None
            if cell is None:
                try:
                    cell = value if value in given else _named(cell_of(value), names[rows.keys[row][0]])
                except ValueError as error:
                    raise rows.error(
                        row, str(error), name, value, "texts, numbers, or lists of them"
                    ) from None
                if isinstance(value, str) and isinstance(cell, str) and cell != value.strip(" \t\r\n"):
                    other.setdefault(value, cell)
                if key is not None:
                    known[key] = cell
            first.setdefault(cell, row)
            of_row.append(cell)
        notes = [f"{name}: the numbers are read as the class names that the file gives"] if any(names) else []
        if other:
            a, b = next(iter(other.items()))
            notes.append(
                f"{name}: {counted(len(other), 'spelling')} with invisible signs, other blanks or Unicode "
                f"forms are read without them, such as {a!a} as {b!a}"
            )
        return cls(name, rows, first, of_row, tuple(notes))

    def error(self, cell: Cell, problem: str, found: object, allowed: object, more: str = "") -> UserError:
        """The error for the first row with a cell."""
        return self.rows.error(self.first[cell], problem, self.name, found, allowed, more)


def _named(cell: Cell, names: Sequence[str]) -> Cell:
    """The cell with numbers replaced by the class names that the file has for them."""
    if not names:
        return cell
    number = {str(i): name for i, name in enumerate(names)}
    return number.get(cell, cell) if isinstance(cell, str) else tuple(number.get(item, item) for item in cell)


def read_labels(rows: Rows, label: SingleColumn | MultiLabelColumn) -> Labels:
    """The labels of all rows. Raises UserError with the first row of a notation that is not clear."""
    if isinstance(label, MultiLabelColumn) and label.columns is not None:
        wide = list(dict.fromkeys(label.wanted(rows.tables[0].columns).values()))
        return _flags(rows, label, wide, [_texts(rows, name) for name in wide], wide)
    given = label.classes and tuple(map(text_of, label.classes))
    column = Column.of(rows, label.column or "", given or ())
    notation = _notation(column, label, given or ())
    if isinstance(label, MultiLabelColumn) and notation.form in ("indicators", "shares"):
        return _lists_of_numbers(column, label, given)
    labels = _by_cell(column, label, notation, given)
    if not any(labels.values()):
        raise UserError("no row has a label", file=rows.tables[0].path, key=column.name)
    notes = (*_said(column, label, notation, given or ()), *column.notes)
    return Labels(label.kind, [labels[cell] for cell in column.of_row], given, notes)


def _notation(column: Column, label: SingleColumn | MultiLabelColumn, given: Collection[str]) -> Notation:
    """How the column writes its labels. Raises UserError where that is not clear."""
    texts = [cell for cell in column.first if isinstance(cell, str) and cell not in given]
    if isinstance(label, SingleColumn):
        for sign in SEPARATORS:
            wrong = [cell for cell in texts if sign in cell]
            if wrong and not given and (sign in ";|" or joined(set(texts), sign)):
                allowed = "kind multi_label, or classes that name it whole"
                raise column.error(wrong[0], "one label or several", wrong[0], allowed, ": name it")
        return Notation("names")
    if label.separator:
        return Notation("divided", label.separator)
    found = recognise(column.first, given)
    if found is None:
        signs = [sign for sign in SEPARATORS if any(sign in cell for cell in texts)] or [" "]
        text = next(text for text in texts if signs[-1] in text)
        raise column.error(
            text, "one label or several", text, [f"separator '{sign}'" for sign in signs], ": name it"
        )
    return found


def _by_cell(
    column: Column, label: SingleColumn | MultiLabelColumn, notation: Notation, given: tuple[str, ...] | None
) -> dict[Cell, tuple[str, ...]]:
    """The labels of each distinct cell. Raises UserError for two spellings of one, and an unknown class."""
    nothing = MISSING - set(given or ()) | {""}
    found: dict[Cell, tuple[str, ...]] = {}
    spelt: dict[str, tuple[str, Cell]] = {}
    for cell in column.first:
        parts = (cell,) if isinstance(cell, str) and cell in (given or ()) else notation.labels(cell)
        labels = tuple(text for part in parts if (text := part.strip()) not in nothing)
        if isinstance(label, SingleColumn) and len(labels) > 1:
            raise column.error(cell, "several labels", labels, "one, or kind multi_label")
        for name in labels:
            if given and name not in given:
                raise column.error(cell, "unknown class", name, list(given), did_you_mean(name, given))
            if isinstance(cell, tuple) and not given and (number_of(name) or 0.0) % 1:
                raise column.error(cell, "a list of numbers with fractions", name, "names, or 0 to 1")
            other, there = spelt.setdefault(form_of(name), (name, cell))
            if other != name and not given:
                raise column.error(
                    cell, "a class is spelt in two ways", [other, name],
                    "one of them, or both named in classes", f" and {column.rows.place(column.first[there])}",
                )  # fmt: skip
        found[cell] = labels
    return found


def _said(
    column: Column, label: SingleColumn | MultiLabelColumn, notation: Notation, given: Collection[str]
) -> list[str]:
    """Sentences on what was recognised beyond the given options."""
    name = column.name
    told = isinstance(label, MultiLabelColumn) and not label.separator and notation.in_words()
    notes = [f"{name}: {told}"] if told else []
    texts = [cell for cell in column.first if isinstance(cell, str)]
    if isinstance(label, SingleColumn) and (whole := joined(dict.fromkeys(texts), " ")):
        notes.append(f'{name}: "{whole}" is one class, and so is each of its words')
    count = Counter(column.of_row)
    nothing = [text for text in texts if text and text in MISSING - set(given)]
    notes += [f'{name}: "{text}" is no label ({counted(count[text], "row")})' for text in nothing]
    return notes


def _lists_of_numbers(column: Column, label: MultiLabelColumn, given: tuple[str, ...] | None) -> Labels:
    """Labels of lists that hold 0, 1 or a share for each class."""
    lists = {cell: cell for cell in column.first if isinstance(cell, tuple)}
    size = len(given) if given else max(map(len, lists))
    for cell in column.first:
        if isinstance(cell, str) and cell not in MISSING:
            raise column.error(cell, "a text among lists of 0 and 1", cell, f"a list of {size} numbers")
        if isinstance(cell, tuple) and len(cell) != size:
            more = " classes are named" if given else " numbers, as the longest has"
            raise column.error(cell, "a number for each class, but not as many", len(cell), f"{size}{more}")
    names = given or tuple(map(str, range(size)))
    texts = [[cell[i] if isinstance(cell, tuple) else "" for cell in column.of_row] for i in range(size)]
    made = _flags(column.rows, label, [column.name] * size, texts, names)
    numbered = "" if given else f", numbered 0 to {size - 1}: name them with classes"
    said = f"{column.name}: {size} numbers a row are 0 and 1 for each of {size} classes{numbered}"
    return Labels(made.kind, made.names, made.classes, (said, *made.notes), made.unknown, made.left_out)


def _flags(
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
        words = {"leave_out": "their rows are left out", "ignore": "loss and metrics leave them out"}
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
            allowed = "threshold 0.5, or another" if share else [*FLAGS, "blank", "-1"]
            raise rows.error(row, problem, column, text, allowed)
        states.append(state)
    return np.asarray(states, dtype=np.int8)[number_N]


def state_of(text: str) -> int | None:
    """What a cell of 0 and 1 says: 1, ABSENT, BLANK or UNCERTAIN; None where it is no such cell."""
    if text in MISSING:
        return BLANK
    short = text.lower().removesuffix(".0")
    return UNCERTAIN if short == "-1" else (int(FLAGS[short]) if short in FLAGS else None)


def _texts(rows: Rows, column: str) -> list[str]:
    def text(row: int, value: Any) -> str:
        try:
            return text_of(value)
        except ValueError as error:
            raise rows.error(row, str(error), column) from None

    return [text(row, value) for row, value in enumerate(rows.frame[column])]


def read_ratings(rows: Rows, label: AspectColumns) -> list[list[float]]:
    """The ratings of the aspects of every row; 0 stands for a missing one. Raises UserError for no rating."""
    columns = list(label.wanted(rows.tables[0].columns).values())
    found = []
    for column in columns:
        texts = _texts(rows, column)
        values = {text: 0.0 if text in MISSING else number_of(text) for text in dict.fromkeys(texts)}
        for text, value in values.items():
            if value is None or (value != 0 and value not in label.scale):
                allowed = [f"{step:g}" for step in label.scale]
                raise rows.error(texts.index(text), "not a rating", column, text, allowed)
        found.append([values[text] for text in texts])
    return [list(row) for row in zip(*found, strict=True)]


def _sorted(labels: Iterable[str]) -> list[str]:
    """By number where all are numbers, so that 10 follows 9."""
    labels = list(labels)
    numbers: Callable[[str], Any] = lambda label: (number_of(label), label)  # noqa: E731
    return sorted(labels, key=numbers if all(number_of(label) is not None for label in labels) else None)
