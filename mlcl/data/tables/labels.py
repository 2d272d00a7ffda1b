"""A column of labels: its distinct cells, and the labels that they name.

The notation is recognised over all rows; if it is ambiguous, an error names the first such row.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any, Literal

from mlcl.data.format import LabelSpace, unknown_column
from mlcl.data.tables.notation import (
    MISSING,
    SEPARATORS,
    TAGGED,
    Cell,
    Notation,
    cell_of,
    find_joined,
    form_of,
    number_of,
    recognise,
    text_of,
    without_entities,
)
from mlcl.data.tables.options import MultiLabelColumn, SingleColumn
from mlcl.data.tables.rows import TableRows
from mlcl.errors import UserError, did_you_mean
from mlcl.markup import counted

JOINING = (" ", "/", "+", "_", ":", "&", "~", "\t", "\u3001", "\uff0c", "\uff1b", "\u060c")
"""Characters at which labels are not split by default.

A note names a class that consists of other classes joined by one of these characters. The last four are
commas and semicolons of Chinese and Arabic."""

MISSING_ITEM = "a list with a missing item"


@dataclass(frozen=True)
class Labels:
    """The labels of every row, as class names.

    `classes` are the classes in order, or None if they are not given. `unknown` has for each row the classes
    of which it is unknown whether the row has them. `left_out` has the numbers of the rows to leave out.
    """

    kind: Literal["single", "multi_label"]
    names: Sequence[tuple[str, ...]]
    classes: tuple[str, ...] | None = None
    notes: tuple[str, ...] = ()
    unknown: Sequence[tuple[str, ...]] | None = None
    left_out: frozenset[int] = field(default_factory=frozenset)

    def space(self) -> LabelSpace:
        """Returns the label space of these labels, with the given classes or those that occur, sorted."""
        classes = self.classes or tuple(_sorted({name for row in self.names for name in row}))
        return LabelSpace(kind=self.kind, classes=classes, unknown=self.unknown is not None)

    def indices(self, space: LabelSpace) -> list[list[int]]:
        """Returns the class indices of every row."""
        return _indices(self.names, space)

    def only(self, rows: Sequence[int]) -> Labels:
        """Returns the labels of some of the rows."""
        unknown = None if self.unknown is None else [self.unknown[row] for row in rows]
        names = [self.names[row] for row in rows]
        return replace(self, names=names, unknown=unknown, left_out=frozenset())

    def columns(self, name: str, space: LabelSpace) -> dict[str, Any]:
        """Maps the data set's columns for the label space `name` to their values."""
        rows = self.indices(space)
        if self.kind == "single":
            return {name: [row[0] if row else None for row in rows]}
        unknown = {} if self.unknown is None else {unknown_column(name): _indices(self.unknown, space)}
        return {name: rows, **unknown}


def _indices(names: Sequence[tuple[str, ...]], space: LabelSpace) -> list[list[int]]:
    index = {name: i for i, name in enumerate(space.classes)}
    known = {labels: [index[name] for name in labels] for labels in set(names)}
    return [known[labels] for labels in names]


def _sorted(labels: Iterable[str]) -> list[str]:
    """Sorts labels by number where all are numbers, so that 10 follows 9."""
    numbers = {label: number_of(label) for label in labels}
    if None in numbers.values():
        return sorted(numbers)
    return sorted(numbers, key=lambda label: (numbers[label], label))


def _class_names(rows: TableRows, name: str) -> Sequence[str]:
    """Returns the class names in the files' metadata, or (). Raises UserError if two files differ in them."""
    first: Sequence[str] = ()
    for table in rows.tables:
        names = table.names.get(name, first)
        if first and list(names) != list(first):
            problem, allowed = "the metadata name other classes than another file's", list(first)
            raise UserError(problem, file=table.path, key=name, found=list(names), allowed=allowed)
        first = names
    return first


@dataclass(frozen=True)
class CellColumn:
    """A column of texts or lists: `first` maps each distinct cell to its first row."""

    name: str
    rows: TableRows
    first: Mapping[Cell, int]
    of_row: Sequence[Cell]
    notes: tuple[str, ...] = ()
    class_names: Sequence[str] = ()

    @classmethod
    def of(cls, rows: TableRows, name: str, given: Collection[str] = ()) -> CellColumn:
        """Reads the cells of a column: texts, numbers or lists of them; a cell in `given` stays a text."""
        first: dict[Cell, int] = {}
        other: dict[str, str] = {}
        of_row = []
        known = lru_cache(None, typed=True)(cell_of)
        for row, value in enumerate(rows.frame[name]):
            read_cell = known if isinstance(value, str | int | float) else cell_of
            try:
                whole = text_of(value) if given and isinstance(value, str) else value
                cell = whole if whole in given else read_cell(value)
            except ValueError as error:
                allowed = "texts, numbers, lists of them, or objects of classes with 0 or 1"
                raise rows.error(row, str(error), name, value, allowed) from None
            if isinstance(value, str) and isinstance(cell, str) and cell != value.strip(" \t\r\n"):
                other.setdefault(value, cell)
            first.setdefault(cell, row)
            of_row.append(cell)
        notes = []
        for a, b in list(other.items())[:1]:
            notes.append(
                f"{name}: {counted(len(other), 'spelling')} with invisible signs, other blanks or Unicode "
                f"forms are read without them, such as {a!a} as {b!a}"
            )
        read = zip(of_row, rows.frame[name], strict=True)
        if any(isinstance(cell, tuple) and _is_object(value) for cell, value in read):
            notes.append(f"{name}: an object's names with 1, or its choices, are its labels")
        names = _class_names(rows, name)
        column = cls(name, rows, first, of_row, tuple(notes), names)
        if not names or ((notation := recognise(first)) is not None and notation.form == "indicators"):
            return column
        return column._named(names)

    def _named(self, names: Sequence[str]) -> CellColumn:
        """Returns the column with numbers, from 0 on, replaced by class names; -1 becomes a missing value."""
        number = {**{str(i): name for i, name in enumerate(names)}, "-1": ""}

        def name_of(item: str, cell: Cell) -> str:
            if item not in number and item not in MISSING:
                raise self.error(cell, "a number without a name", item, f"0 to {len(names) - 1}")
            return number.get(item, item)

        new: dict[Cell, Cell] = {
            cell: name_of(cell, cell)
            if isinstance(cell, str)
            else tuple(name_of(i, cell) for i in cell if i != "-1")
            for cell in self.first
        }
        first: dict[Cell, int] = {}
        for cell, row in self.first.items():
            first.setdefault(new[cell], row)
        note = f"{self.name}: the numbers are read as the class names that the file gives"
        of_row = [new[cell] for cell in self.of_row]
        return replace(self, first=first, of_row=of_row, notes=(*self.notes, note))

    def missing(self, given: Collection[str] = ()) -> frozenset[str]:
        """Returns the texts that are not labels: those in `MISSING` that are not the name of a class."""
        return MISSING - set(given) - set(self.class_names)

    def error(self, cell: Cell, problem: str, found: object, allowed: object, more: str = "") -> UserError:
        """Creates the error for the first row that has `cell`."""
        return self.rows.error(self.first[cell], problem, self.name, found, allowed, more)


def _is_object(value: object) -> bool:
    return isinstance(value, Mapping) or (
        isinstance(value, str) and value.lstrip().startswith("{") and ":" in value
    )


def notation_of(
    column: CellColumn, label: SingleColumn | MultiLabelColumn, given: Collection[str]
) -> Notation:
    """Determines how a column writes its labels. Raises UserError where that is ambiguous."""
    texts = [cell for cell in column.first if isinstance(cell, str) and cell not in given]
    if isinstance(label, SingleColumn):
        for sign in (*SEPARATORS, "#"):
            wrong = [cell for cell in texts if sign in without_entities(cell)]
            if wrong and not given and (sign in ";|" or find_joined(set(texts), sign)):
                separator = "" if sign in SEPARATORS else f" with separator '{sign}'"
                allowed = f"kind multi_label{separator}, or classes with it whole"
                raise column.error(wrong[0], "one label or several", wrong[0], allowed, ": name it")
        return Notation("names")
    found = recognise(column.first, given)
    named = any(text not in MISSING for text in texts)
    if label.separator and named and (found is None or found.separator != label.separator):
        return Notation("divided", label.separator)
    if found is None:
        raise _unclear(column, texts)
    return found


def _unclear(column: CellColumn, texts: Sequence[str]) -> UserError:
    """Creates the error for the first text without tags, if most have tags, or that may be several labels."""
    for pattern in TAGGED.values():
        other = [text for text in texts if text not in MISSING and not pattern.fullmatch(text)]
        if other and 2 * len(other) < len(texts):
            return column.error(other[0], "written in another way than most labels", other[0], "<a> or #a")
    plain = {text: without_entities(text) for text in texts}
    signs = [sign for sign in SEPARATORS if any(sign in its for its in plain.values())] or [" "]
    text = next(text for text, its in plain.items() if signs[-1] in its)
    shown = ["$'\\n'" if sign == "\n" else f"'{sign}'" for sign in signs]  # an error is on one line
    allowed = [*(f"separator {sign}" for sign in shown), "kind single"]
    return column.error(text, "one label or several", text, allowed, ": name it")


def named_labels(
    column: CellColumn, label: SingleColumn | MultiLabelColumn, notation: Notation, given: tuple[str, ...]
) -> Labels:
    """Reads labels from cells that name classes.

    Raises UserError for a class in two spellings or not in `given`, and if no row has a label.
    """
    parts = {part.strip() for cell in column.first for part in notation.labels(cell)} - MISSING
    numbers = {str(i): name for i, name in enumerate(given)}
    if "0" not in parts or not parts <= numbers.keys() or parts & set(given):
        numbers = {}
    labels = _by_cell(column, notation, given, numbers, several=isinstance(label, MultiLabelColumn))
    if not any(labels.values()):
        raise UserError("no row has a label", file=column.rows.tables[0].path, key=column.name)
    notes = [f"{column.name}: the numbers are read as the given classes, from 0 on"] if numbers else []
    if unused := [name for number, name in numbers.items() if number not in parts]:
        count = counted(len(unused), "name")
        notes.append(f"{column.name}: no row has the number of {count}, such as {unused[0]}")
    if isinstance(label, MultiLabelColumn) and not label.separator and notation.in_words():
        notes.insert(0, f"{column.name}: {notation.in_words()}")
    notes += [*_odd_cells(column, notation, given), *column.notes]
    return Labels(label.kind, [labels[cell] for cell in column.of_row], given or None, tuple(notes))


def _by_cell(
    column: CellColumn, notation: Notation, given: Sequence[str], numbers: Mapping[str, str], *, several: bool
) -> dict[Cell, tuple[str, ...]]:
    """Returns the labels of each distinct cell; `numbers` maps class numbers in cells to class names."""
    missing = column.missing(given)
    nothing = missing | {""}
    found: dict[Cell, tuple[str, ...]] = {}
    spelt: dict[str, tuple[str, Cell]] = {}
    for cell in column.first:
        parts = (cell,) if isinstance(cell, str) and cell in given else notation.labels(cell)
        if isinstance(cell, tuple) and missing & set(parts):
            raise column.error(cell, MISSING_ITEM, list(parts), "no such item, or classes with it")
        texts = (" ".join(part.split("\n")).strip() for part in parts)  # a name may be on two lines
        labels = tuple(numbers.get(text, text) for text in texts if text not in nothing)
        if not several and len(labels) > 1:
            raise column.error(cell, "several labels", labels, "one, or kind multi_label")
        for name in labels:
            if isinstance(cell, tuple) and not given and any(sign in without_entities(name) for sign in ";|"):
                allowed = "an item for each label, or classes with it whole"
                raise column.error(cell, "an item of a list is one label or several", name, allowed)
            if given and name not in given:
                raise column.error(cell, "unknown class", name, list(given), did_you_mean(name, given))
            if isinstance(cell, tuple) and not given and (number_of(name) or 0.0) % 1:
                raise column.error(cell, "a list of numbers with fractions", name, "names, or 0 to 1")
            other, there = spelt.setdefault(form_of(name), (name, cell))
            if other != name and not given:
                more = f" and {column.rows.place(column.first[there])}"
                allowed = "one of them, or both named in classes"
                raise column.error(cell, "a class is spelt in two ways", [other, name], allowed, more)
        found[cell] = labels
    return found


def _odd_cells(column: CellColumn, notation: Notation, given: Sequence[str]) -> list[str]:
    """Returns notes on classes that consist of other classes, and on cells that are read as no label."""
    notes = []
    texts = [cell for cell in column.first if isinstance(cell, str)]
    for sign in JOINING if notation.form == "names" else ():
        if whole := find_joined(dict.fromkeys(texts), sign):
            parts = "each of its words" if sign == " " else f"each of its parts at {sign!r}"
            notes.append(f'{column.name}: "{whole}" is one class, and so is {parts}')
    count = Counter(column.of_row)
    missing = column.missing(given)
    nothing = [text for text in texts if text and text in missing]
    notes += [f'{column.name}: "{text}" is no label ({counted(count[text], "row")})' for text in nothing]
    return notes
