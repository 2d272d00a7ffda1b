"""Reads the labels of a column: the notation is recognised over all rows, or refused with its first row."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence

from mlcl.data.tables.indicators import from_columns, from_lists, state_of
from mlcl.data.tables.label_columns import Column, Labels
from mlcl.data.tables.notation import (
    MISSING,
    SEPARATORS,
    TAGGED,
    Cell,
    Notation,
    form_of,
    joined,
    number_of,
    recognise,
    text_of,
)
from mlcl.data.tables.options import MultiLabelColumn, SingleColumn
from mlcl.data.tables.rows import Rows
from mlcl.errors import UserError, did_you_mean
from mlcl.markup import counted

JOINING = (" ", "/", "+", "_", ":", "&", "\n", "\t")
"""Signs that may stand between labels and are not taken for separators: a note says where they may."""


def read_labels(rows: Rows, label: SingleColumn | MultiLabelColumn) -> Labels:
    """The labels of all rows. Raises UserError with the first row of a notation that is not clear."""
    if isinstance(label, MultiLabelColumn) and label.columns is not None:
        return from_columns(rows, label)
    given = tuple(map(text_of, label.classes or ()))
    column = Column.of(rows, label.column or "", given)
    notation = _notation(column, label, given)
    if isinstance(label, MultiLabelColumn) and notation.form in ("indicators", "shares"):
        return from_lists(column, label, notation, given or column.class_names)
    if isinstance(label, MultiLabelColumn) and not given and _is_flag(column):
        return from_columns(rows, label.model_copy(update={"column": None, "columns": (column.name,)}))
    labels = _by_cell(column, label, notation, given)
    if not any(labels.values()):
        raise UserError("no row has a label", file=rows.tables[0].path, key=column.name)
    notes = (*_said(column, label, notation, given), *column.notes)
    return Labels(label.kind, [labels[cell] for cell in column.of_row], given or None, notes)


def _places(column: Column, notation: Notation, given: Sequence[str]) -> dict[str, str]:
    """The given names by their places, from 0 on, where the column has such numbers and no names."""
    parts = {part.strip() for cell in column.first for part in notation.labels(cell)} - MISSING
    places = {str(i): name for i, name in enumerate(given)}
    return places if "0" in parts and parts <= places.keys() and not parts & set(given) else {}


def _is_flag(column: Column) -> bool:
    """Whether a column is one of 0 and 1."""
    states = {state_of(cell) if isinstance(cell, str) else None for cell in column.first}
    return states >= {0, 1} and None not in states


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
    found = recognise(column.first, given)
    if label.separator and (found is None or found.separator != label.separator):
        return Notation("divided", label.separator)
    if found is None:
        raise _unclear(column, texts)
    return found


def _unclear(column: Column, texts: Sequence[str]) -> UserError:
    """The error for the first text of which it is not clear whether it is one label or several."""
    for pattern in TAGGED.values():
        other = [text for text in texts if text not in MISSING and not pattern.fullmatch(text)]
        if 2 * len(other) < len(texts):
            return column.error(other[0], "written in another way than most labels", other[0], "<a> or #a")
    signs = [sign for sign in SEPARATORS if any(sign in text for text in texts)] or [" "]
    text = next(text for text in texts if signs[-1] in text)
    allowed = [*(f"separator '{sign}'" for sign in signs), "kind single"]
    return column.error(text, "one label or several", text, allowed, ": name it")


def _by_cell(
    column: Column, label: SingleColumn | MultiLabelColumn, notation: Notation, given: Sequence[str]
) -> dict[Cell, tuple[str, ...]]:
    """The labels of each distinct cell. Raises UserError for two spellings of one, and an unknown class."""
    nothing = MISSING - set(given) | {""}
    places = _places(column, notation, given)
    found: dict[Cell, tuple[str, ...]] = {}
    spelt: dict[str, tuple[str, Cell]] = {}
    for cell in column.first:
        parts = (cell,) if isinstance(cell, str) and cell in given else notation.labels(cell)
        labels = tuple(places.get(text, text) for part in parts if (text := part.strip()) not in nothing)
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
    column: Column, label: SingleColumn | MultiLabelColumn, notation: Notation, given: Sequence[str]
) -> list[str]:
    """Sentences on what was recognised beyond the given options."""
    name = column.name
    told = isinstance(label, MultiLabelColumn) and not label.separator and notation.in_words()
    notes = [f"{name}: {told}"] if told else []
    if _places(column, notation, given):
        notes.append(f"{name}: the numbers are read as the given classes, from 0 on")
    texts = [cell for cell in column.first if isinstance(cell, str)]
    for sign in JOINING if notation.form == "names" else ():
        if whole := joined(dict.fromkeys(texts), sign):
            parts = "each of its words" if sign == " " else f"each of its parts at {sign!r}"
            notes.append(f'{name}: "{whole}" is one class, and so is {parts}')
    count = Counter(column.of_row)
    nothing = [text for text in texts if text and text in MISSING - set(given)]
    notes += [f'{name}: "{text}" is no label ({counted(count[text], "row")})' for text in nothing]
    return notes
