"""How labels are written in a cell of a table: as lists, with separators, or as nothing."""

from __future__ import annotations

import ast
import json
import math
import re
from collections.abc import Collection, Mapping
from typing import Any

SEPARATORS = (";", "|", ",")
"""What may stand between the labels of a text where no separator is given."""
NOTHING = frozenset({"nan", "NaN", "NAN", "None", "null", "NULL", "<NA>", "NA", "N/A", "n/a", "#N/A", "NaT"})
"""What pandas, R, SQL and spreadsheets write for a missing value."""
FLAGS = {"1": True, "0": False, "true": True, "false": False, "yes": True, "no": False, "": False}
"""What the column of a class holds, in small letters: whether the row has the class."""
_TOKEN = re.compile(r"""\s*("(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'|,|[^\s,'"\[\]]+)\s*""", re.DOTALL)
"""In a list: an item in quotes, a comma, or a word."""


def text_of(value: Any) -> str:
    """A value as the name of a class, "" for a missing one. Raises ValueError for no text or number."""
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return ""
    if isinstance(value, float):
        short = f"{value:g}"
        return short if float(short) == value else repr(value)
    if isinstance(value, bytes | Mapping | list | tuple | set):
        raise ValueError(f"no name of a class: {value!r}")
    return str(value).strip()


def items_of(text: str) -> list[str] | None:
    """The items of a list as JSON, Python or NumPy write it; None for a text that does not begin with [.

    Raises ValueError for one that does and is no such list.
    """
    if not text.startswith("["):
        return None
    tokens, place, end = list[str](), len(text) - len(text[1:].lstrip()), len(text) - 1
    while place < end and (found := _TOKEN.match(text, place, end)):
        tokens.append(found[1])
        place = found.end()
    groups = _between_commas(tokens) if "," in tokens else [[token] for token in tokens]
    bare = [token for token in tokens if token[0] not in "'\","]
    words = "," not in tokens and len(tokens) > 1 and any(not token.isdigit() for token in bare)
    several = any(len(group) > 1 and not set(group) <= set(bare) for group in groups)
    if text[end] != "]" or place < end or not all(groups) or words or several or "..." in bare:
        raise ValueError("begins with [ and is no list of labels")
    return [" ".join(map(_unquoted, group)) for group in groups]


def _between_commas(tokens: list[str]) -> list[list[str]]:
    groups: list[list[str]] = [[]]
    for token in tokens:
        if token == ",":
            groups.append([])
        else:
            groups[-1].append(token)
    return groups if groups[-1] else groups[:-1]


def _unquoted(token: str) -> str:
    try:
        if token[0] == '"':
            return str(json.loads(token, strict=False))
        return str(ast.literal_eval(token)) if token[0] == "'" else token
    except SyntaxError as error:
        raise ValueError(str(error)) from None


def divides(cells: Collection[str], separator: str) -> bool:
    """Whether the separator stands between labels: no more labels than cells come of dividing these texts."""
    return any(separator in cell for cell in cells) and len(parts_of(cells, separator)) <= len(cells)


def parts_of(cells: Collection[str], separator: str) -> set[str]:
    """The distinct parts of these texts between separators."""
    return {part.strip() for cell in cells for part in cell.split(separator)}


def joined(cells: Collection[str], separator: str) -> str | None:
    """The first of these texts that joins several which stand alone in others, None where none does."""
    return next(
        (
            cell
            for cell in cells
            if separator in cell and all(part.strip() in cells for part in cell.split(separator))
        ),
        None,
    )


def form_of(label: str) -> str:
    """What two spellings of a label share: small letters, one blank between words, no quotes or brackets."""
    return " ".join(label.casefold().split()).strip("'\"[]{}() ")
