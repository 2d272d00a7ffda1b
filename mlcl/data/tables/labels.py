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
from mlcl.markup import format_count

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
        classes = self.classes or tuple(_sort_labels({name for row in self.names for name in row}))
        return LabelSpace(kind=self.kind, classes=classes, unknown=self.unknown is not None)

    def indices(self, space: LabelSpace) -> list[list[int]]:
        """Returns the class indices of every row."""
        return _class_indices(self.names, space)

    def take(self, rows: Sequence[int]) -> Labels:
        """Returns the labels of some of the rows."""
        unknown = None if self.unknown is None else [self.unknown[row] for row in rows]
        names = [self.names[row] for row in rows]
        return replace(self, names=names, unknown=unknown, left_out=frozenset())

    def columns(self, name: str, space: LabelSpace) -> dict[str, Any]:
        """Maps the data set's columns for the label space `name` to their values."""
        rows = self.indices(space)
        if self.kind == "single":
            return {name: [row[0] if row else None for row in rows]}
        unknown = {} if self.unknown is None else {unknown_column(name): _class_indices(self.unknown, space)}
        return {name: rows, **unknown}


def _class_indices(names: Sequence[tuple[str, ...]], space: LabelSpace) -> list[list[int]]:
    index = {name: i for i, name in enumerate(space.classes)}
    indices_of = {labels: [index[name] for name in labels] for labels in set(names)}
    return [indices_of[labels] for labels in names]


def _sort_labels(labels: Iterable[str]) -> list[str]:
    """Sorts labels by number where all are numbers, so that 10 follows 9."""
    numbers = {label: number_of(label) for label in labels}
    if None in numbers.values():
        return sorted(numbers)
    return sorted(numbers, key=lambda label: (numbers[label], label))


def _class_names(rows: TableRows, name: str) -> Sequence[str]:
    """Returns the class names in the files' metadata, or (). Raises UserError if two files differ in them."""
    class_names: Sequence[str] = ()
    for table in rows.tables:
        names = table.names.get(name, class_names)
        if class_names and list(names) != list(class_names):
            problem, allowed = "the metadata name other classes than another file's", list(class_names)
            raise UserError(problem, file=table.path, key=name, found=list(names), allowed=allowed)
        class_names = names
    return class_names


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
    def of(cls, rows: TableRows, name: str, class_names: Collection[str] = ()) -> CellColumn:
        """Reads the cells of a column: texts, numbers or lists of them; one in `class_names` stays a text."""
        first_row: dict[Cell, int] = {}
        variants: dict[str, str] = {}
        of_row = []
        cached_cell_of = lru_cache(None, typed=True)(cell_of)
        for row, value in enumerate(rows.frame[name]):
            read_cell = cached_cell_of if isinstance(value, str | int | float) else cell_of
            try:
                text = text_of(value) if class_names and isinstance(value, str) else value
                cell = text if text in class_names else read_cell(value)
            except ValueError as error:
                allowed = "texts, numbers, lists of them, or objects of classes with 0 or 1"
                raise rows.error(row, str(error), name, value, allowed) from None
            if isinstance(value, str) and isinstance(cell, str) and cell != value.strip(" \t\r\n"):
                variants.setdefault(value, cell)
            first_row.setdefault(cell, row)
            of_row.append(cell)
        notes = []
        for a, b in list(variants.items())[:1]:
            notes.append(
                f"{name}: {format_count(len(variants), 'spelling')} with invisible signs, other blanks or "
                f"Unicode forms are read without them, such as {a!a} as {b!a}"
            )
        pairs = zip(of_row, rows.frame[name], strict=True)
        if any(isinstance(cell, tuple) and _is_object(value) for cell, value in pairs):
            notes.append(f"{name}: an object's names with 1, or its choices, are its labels")
        names = _class_names(rows, name)
        column = cls(name, rows, first_row, of_row, tuple(notes), names)
        if not names or ((notation := recognise(first_row)) is not None and notation.form == "indicators"):
            return column
        return column._replace_numbers(names)

    def _replace_numbers(self, names: Sequence[str]) -> CellColumn:
        """Returns the column with numbers, from 0 on, replaced by class names; -1 becomes a missing value."""
        name_of_number = {**{str(i): name for i, name in enumerate(names)}, "-1": ""}

        def name_of(item: str, cell: Cell) -> str:
            if item not in name_of_number and item not in MISSING:
                raise self.error(cell, "a number without a name", item, f"0 to {len(names) - 1}")
            return name_of_number.get(item, item)

        new_cells: dict[Cell, Cell] = {
            cell: name_of(cell, cell)
            if isinstance(cell, str)
            else tuple(name_of(i, cell) for i in cell if i != "-1")
            for cell in self.first
        }
        first_row: dict[Cell, int] = {}
        for cell, row in self.first.items():
            first_row.setdefault(new_cells[cell], row)
        note = f"{self.name}: the numbers are read as the class names that the file gives"
        of_row = [new_cells[cell] for cell in self.of_row]
        return replace(self, first=first_row, of_row=of_row, notes=(*self.notes, note))

    def missing_texts(self, class_names: Collection[str] = ()) -> frozenset[str]:
        """Returns the texts that are not labels: those in `MISSING` that are not the name of a class."""
        return MISSING - set(class_names) - set(self.class_names)

    def error(self, cell: Cell, problem: str, found: object, allowed: object, suffix: str = "") -> UserError:
        """Creates the error for the first row that has `cell`."""
        return self.rows.error(self.first[cell], problem, self.name, found, allowed, suffix)


def _is_object(value: object) -> bool:
    return isinstance(value, Mapping) or (
        isinstance(value, str) and value.lstrip().startswith("{") and ":" in value
    )


def notation_of(
    column: CellColumn, label: SingleColumn | MultiLabelColumn, class_names: Collection[str]
) -> Notation:
    """Determines how a column writes its labels. Raises UserError where that is ambiguous."""
    texts = [cell for cell in column.first if isinstance(cell, str) and cell not in class_names]
    if isinstance(label, SingleColumn):
        for sign in (*SEPARATORS, "#"):
            ambiguous = [cell for cell in texts if sign in without_entities(cell)]
            if ambiguous and not class_names and (sign in ";|" or find_joined(set(texts), sign)):
                separator = "" if sign in SEPARATORS else f" with separator '{sign}'"
                allowed = f"kind multi_label{separator}, or classes with it whole"
                raise column.error(ambiguous[0], "one label or several", ambiguous[0], allowed, ": name it")
        return Notation("names")
    notation = recognise(column.first, class_names)
    has_labels = any(text not in MISSING for text in texts)
    if label.separator and has_labels and (notation is None or notation.separator != label.separator):
        return Notation("divided", label.separator)
    if notation is None:
        raise _ambiguity_error(column, texts)
    return notation


def _ambiguity_error(column: CellColumn, texts: Sequence[str]) -> UserError:
    """Creates the error for the first text without tags, if most have tags, or that may be several labels."""
    for pattern in TAGGED.values():
        others = [text for text in texts if text not in MISSING and not pattern.fullmatch(text)]
        if others and 2 * len(others) < len(texts):
            return column.error(others[0], "written in another way than most labels", others[0], "<a> or #a")
    forms = {text: without_entities(text) for text in texts}
    signs = [sign for sign in SEPARATORS if any(sign in form for form in forms.values())] or [" "]
    text = next(text for text, form in forms.items() if signs[-1] in form)
    quoted_signs = ["$'\\n'" if sign == "\n" else f"'{sign}'" for sign in signs]  # an error is on one line
    allowed = [*(f"separator {sign}" for sign in quoted_signs), "kind single"]
    return column.error(text, "one label or several", text, allowed, ": name it")


def read_class_labels(
    column: CellColumn,
    label: SingleColumn | MultiLabelColumn,
    notation: Notation,
    class_names: tuple[str, ...],
) -> Labels:
    """Reads labels from cells that name classes.

    Raises UserError for a class in two spellings or not in `class_names`, and if no row has a label.
    """
    parts = {part.strip() for cell in column.first for part in notation.labels(cell)} - MISSING
    numbers = {str(i): name for i, name in enumerate(class_names)}
    if "0" not in parts or not parts <= numbers.keys() or parts & set(class_names):
        numbers = {}
    labels = _labels_by_cell(
        column, notation, class_names, numbers, several=isinstance(label, MultiLabelColumn)
    )
    if not any(labels.values()):
        raise UserError("no row has a label", file=column.rows.tables[0].path, key=column.name)
    notes = [f"{column.name}: the numbers are read as the given classes, from 0 on"] if numbers else []
    if unused_names := [name for number, name in numbers.items() if number not in parts]:
        count = format_count(len(unused_names), "name")
        notes.append(f"{column.name}: no row has the number of {count}, such as {unused_names[0]}")
    if isinstance(label, MultiLabelColumn) and not label.separator and notation.in_words():
        notes.insert(0, f"{column.name}: {notation.in_words()}")
    notes += [*_note_odd_cells(column, notation, class_names), *column.notes]
    return Labels(label.kind, [labels[cell] for cell in column.of_row], class_names or None, tuple(notes))


def _labels_by_cell(
    column: CellColumn, notation: Notation, names: Sequence[str], numbers: Mapping[str, str], *, several: bool
) -> dict[Cell, tuple[str, ...]]:
    """Returns the labels of each distinct cell; `numbers` maps class numbers in cells to class names."""
    missing_texts = column.missing_texts(names)
    ignored_texts = missing_texts | {""}
    labels_of_cell: dict[Cell, tuple[str, ...]] = {}
    spellings: dict[str, tuple[str, Cell]] = {}
    for cell in column.first:
        parts = (cell,) if isinstance(cell, str) and cell in names else notation.labels(cell)
        if isinstance(cell, tuple) and missing_texts & set(parts):
            raise column.error(cell, MISSING_ITEM, list(parts), "no such item, or classes with it")
        texts = (" ".join(part.split("\n")).strip() for part in parts)  # a name may be on two lines
        labels = tuple(numbers.get(text, text) for text in texts if text not in ignored_texts)
        if not several and len(labels) > 1:
            raise column.error(cell, "several labels", labels, "one, or kind multi_label")
        for name in labels:
            if isinstance(cell, tuple) and not names and any(sign in without_entities(name) for sign in ";|"):
                allowed = "an item for each label, or classes with it whole"
                raise column.error(cell, "an item of a list is one label or several", name, allowed)
            if names and name not in names:
                raise column.error(cell, "unknown class", name, list(names), did_you_mean(name, names))
            if isinstance(cell, tuple) and not names and (number_of(name) or 0.0) % 1:
                raise column.error(cell, "a list of numbers with fractions", name, "names, or 0 to 1")
            other, other_cell = spellings.setdefault(form_of(name), (name, cell))
            if other != name and not names:
                more = f" and {column.rows.place(column.first[other_cell])}"
                allowed = "one of them, or both named in classes"
                raise column.error(cell, "a class is spelt in two ways", [other, name], allowed, more)
        labels_of_cell[cell] = labels
    return labels_of_cell


def _note_odd_cells(column: CellColumn, notation: Notation, names: Sequence[str]) -> list[str]:
    """Returns notes on classes that consist of other classes, and on cells that are read as no label."""
    notes = []
    texts = [cell for cell in column.first if isinstance(cell, str)]
    for sign in JOINING if notation.form == "names" else ():
        if cell := find_joined(dict.fromkeys(texts), sign):
            parts = "each of its words" if sign == " " else f"each of its parts at {sign!r}"
            notes.append(f'{column.name}: "{cell}" is one class, and so is {parts}')
    counts = Counter(column.of_row)
    missing_texts = column.missing_texts(names)
    ignored = [text for text in texts if text and text in missing_texts]
    notes += [
        f'{column.name}: "{text}" is no label ({format_count(counts[text], "row")})' for text in ignored
    ]
    return notes
