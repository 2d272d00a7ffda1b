"""Reads the labels of a column: the notation is recognised over all rows, or refused with its first row."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection

from mlcl.data.tables.indicators import from_columns, from_lists
from mlcl.data.tables.label_columns import Column, Labels
from mlcl.data.tables.notation import (
    MISSING,
    SEPARATORS,
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


def read_labels(rows: Rows, label: SingleColumn | MultiLabelColumn) -> Labels:
    """The labels of all rows. Raises UserError with the first row of a notation that is not clear."""
    if isinstance(label, MultiLabelColumn) and label.columns is not None:
        return from_columns(rows, label)
    given = label.classes and tuple(map(text_of, label.classes))
    column = Column.of(rows, label.column or "", given or ())
    notation = _notation(column, label, given or ())
    if isinstance(label, MultiLabelColumn) and notation.form in ("indicators", "shares"):
        return from_lists(column, label, given)
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
