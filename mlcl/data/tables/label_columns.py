"""A column of labels in memory: its distinct cells, and the labels that were read from it."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from mlcl.data.format import LabelSpace
from mlcl.data.tables.notation import MISSING, Cell, cell_of, number_of, recognise, text_of
from mlcl.data.tables.rows import Rows
from mlcl.errors import UserError
from mlcl.markup import counted


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
    class_names: Sequence[str] = ()

    @classmethod
    def of(cls, rows: Rows, name: str, given: Collection[str] = ()) -> Column:
        """The cells of a column; `given` are names of classes, which are no lists.

        Raises UserError for a value that is neither a text, a number nor a list of these.
        """
        first: dict[Cell, int] = {}
        known: dict[Any, Cell] = {}
        other: dict[str, str] = {}
        of_row = []
        for row, value in enumerate(rows.frame[name]):
            key = (type(value), value) if isinstance(value, str | int | float) else None
            cell = known.get(key) if key is not None else None
            if cell is None:
                try:
                    cell = value if value in given else cell_of(value)
                except ValueError as error:
                    allowed = "texts, numbers, or lists of them"
                    raise rows.error(row, str(error), name, value, allowed) from None
                if isinstance(value, str) and isinstance(cell, str) and cell != value.strip(" \t\r\n"):
                    other.setdefault(value, cell)
                if key is not None:
                    known[key] = cell
            first.setdefault(cell, row)
            of_row.append(cell)
        notes = []
        if other:
            a, b = next(iter(other.items()))
            notes.append(
                f"{name}: {counted(len(other), 'spelling')} with invisible signs, other blanks or Unicode "
                f"forms are read without them, such as {a!a} as {b!a}"
            )
        names = next((table.names[name] for table in rows.tables if name in table.names), ())
        column = cls(name, rows, first, of_row, tuple(notes), names)
        if not names or ((notation := recognise(first)) is not None and notation.form == "indicators"):
            return column
        return column._named(names)

    def _named(self, names: Sequence[str]) -> Column:
        """The column with numbers replaced by names, from 0 on; -1 is missing.

        Raises UserError for a number without a name.
        """
        number = {**{str(i): name for i, name in enumerate(names)}, "-1": ""}

        def name_of(item: str, cell: Cell) -> str:
            if item not in number and item not in MISSING:
                raise self.error(cell, "a number without a name", item, f"0 to {len(names) - 1}")
            return number.get(item, item)

        new: dict[Cell, Cell] = {
            cell: name_of(cell, cell) if isinstance(cell, str) else tuple(name_of(i, cell) for i in cell)
            for cell in self.first
        }
        first: dict[Cell, int] = {}
        for cell, row in self.first.items():
            first.setdefault(new[cell], row)
        note = f"{self.name}: the numbers are read as the class names that the file gives"
        of_row = [new[cell] for cell in self.of_row]
        return replace(self, first=first, of_row=of_row, notes=(*self.notes, note))

    def error(self, cell: Cell, problem: str, found: object, allowed: object, more: str = "") -> UserError:
        """The error for the first row with a cell."""
        return self.rows.error(self.first[cell], problem, self.name, found, allowed, more)


def texts_of(rows: Rows, column: str) -> list[str]:
    """The values of a column as texts. Raises UserError for the first that is none."""

    def text(row: int, value: Any) -> str:
        try:
            return text_of(value)
        except ValueError as error:
            raise rows.error(row, str(error), column) from None

    return [text(row, value) for row, value in enumerate(rows.frame[column])]


def _sorted(labels: Iterable[str]) -> list[str]:
    """By number where all are numbers, so that 10 follows 9."""
    numbers = {label: number_of(label) for label in labels}
    if None in numbers.values():
        return sorted(numbers)
    return sorted(numbers, key=lambda label: (numbers[label], label))
