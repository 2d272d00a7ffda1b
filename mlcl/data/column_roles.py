"""What the columns of a table are for, as far as their names and values tell: texts, labels, ids, splits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

from mlcl.data.sources.common.label_notation import (
    FLAGS,
    NOTHING,
    SEPARATORS,
    divides,
    joined,
    parts_of,
    text_of,
)
from mlcl.data.sources.common.table_splits import SPLIT_NAMES
from mlcl.data.table_file import TableFile

ROWS_READ = 20_000
"""Rows that are read to tell what a column holds."""
TEXT_NAMES = {
    "text",
    "body",
    "content",
    "review",
    "description",
    "sentence",
    "abstract",
    "message",
    "document",
}
LABEL_NAMES = {
    "label",
    "class",
    "category",
    "topic",
    "tag",
    "target",
    "y",
    "intent",
    "sentiment",
    "emotion",
    "code",
}
"""In small letters, without the s or es of a plural."""
ID_NAMES = {"id", "uid", "key", "uuid", "index", "idx"}
SPLIT_COLUMNS = {"split", "set", "fold", "subset", "partition"}
MOST_CLASSES = 2_000


@dataclass(frozen=True)
class Column:
    """A column over the first `ROWS_READ` rows.

    `kind`: `text`; labels as `single`, `multi_label` or `flag` (0 and 1); or `other`, such as numbers.
    `named` says that the name is one that texts, or labels, often have.
    """

    name: str
    kind: str
    named: bool
    distinct: int
    words: float
    example: str
    separator: str | None = None


@dataclass(frozen=True)
class Roles:
    """The columns of a table by their role; `labels` are those that may be labels, the likeliest first."""

    text: Column | None
    labels: tuple[Column, ...]
    texts: tuple[Column, ...]
    id: str | None = None
    split: str | None = None


def roles_of(table: TableFile) -> Roles:
    """The roles of the columns of a table. Raises UserError where it cannot be read."""
    rows = [row.values for row in islice(table.rows(table.columns), ROWS_READ)]
    values = {name: [row.get(name) for row in rows] for name in dict.fromkeys(table.columns)}
    id = next((name for name in values if _is_id(name, values[name])), None)
    split = next((name for name in values if _is_split(name, values[name])), None)
    columns = [column_of(name, its) for name, its in values.items() if name not in (id, split)]
    texts = sorted((c for c in columns if c.kind == "text"), key=lambda c: (not c.named, -c.words))
    labels = [c for c in columns if c.kind in ("single", "multi_label", "flag")]
    return Roles(
        texts[0] if texts else None,
        tuple(sorted(labels, key=lambda c: not c.named)),
        tuple(texts),
        id if id is not None and len(set(map(str, values[id]))) == len(rows) else None,
        split,
    )


def column_of(name: str, values: Sequence[Any]) -> Column:
    """What a column is, by its values."""
    lists = any(isinstance(value, list | tuple | Mapping | bytes) for value in values)
    texts = [] if lists else [text for value in values if (text := text_of(value)) not in {*NOTHING, ""}]
    cells = dict.fromkeys(texts)
    words = sum(len(text.split()) for text in texts) / max(1, len(texts))
    bare = [cell for cell in cells if not cell.startswith("[")]
    separator = next((sign for sign in SEPARATORS if divides(bare, sign)), None)
    lower = name.lower()
    kind = _kind(lower, texts, words, separator) if not lists else _kind_of_lists(values)
    if kind == "single" and joined(cells, " "):
        kind, separator = "multi_label", " "
    forms = {lower, lower.removesuffix("s"), lower.removesuffix("es"), lower.removesuffix("ies") + "y"}
    named = bool(forms & (TEXT_NAMES if kind == "text" else LABEL_NAMES))
    example = str(next(iter(cells), next((value for value in values if value), "")))
    # Where another sign divides what is between separators, the reader asks which one it is.
    unclear = separator and any(divides(parts_of(bare, separator), sign) for sign in SEPARATORS)
    divided = kind == "multi_label" and not unclear
    return Column(name, kind, named, len(cells), words, example, separator if divided else None)


def _kind_of_lists(values: Sequence[Any]) -> str:
    plain = [part for value in values if isinstance(value, list) for part in value]
    return "multi_label" if plain and all(isinstance(part, str | int) for part in plain) else "other"


def _kind(name: str, texts: Sequence[str], words: float, separator: str | None) -> str:
    cells = list(dict.fromkeys(texts))
    if len(cells) < 2:
        return "other"
    if all(cell.lower().removesuffix(".0") in FLAGS for cell in cells):
        return "flag"
    if cells[0].startswith("[") and cells[0].endswith("]"):
        return "multi_label"
    rare = len(cells) > min(MOST_CLASSES, len(texts) / 2)
    # Sentences share parts between commas, too, but not as many as label sets do.
    sets = separator is not None and len(parts_of(cells, separator)) <= len(cells) / 2
    if rare and (name in TEXT_NAMES or (words >= 3 and not sets)):
        return "text"
    if separator:
        return "multi_label"
    return "other" if rare or _continuous(cells) else "single"


def _continuous(cells: Sequence[str]) -> bool:
    """Whether they are numbers with fractions, which are measured and not classes."""
    try:
        return any(not float(cell).is_integer() for cell in cells) and len(cells) > len(FLAGS)
    except ValueError:
        return False


def _is_id(name: str, values: Sequence[Any]) -> bool:
    return name.lower() in ID_NAMES or (
        name.lower().endswith("_id") and len(set(map(str, values))) == len(values)
    )


def _is_split(name: str, values: Sequence[Any]) -> bool:
    named = {str(value).strip().lower() for value in values}
    return name.lower() in SPLIT_COLUMNS and bool(named) and named <= SPLIT_NAMES.keys()
