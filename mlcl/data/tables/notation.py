"""Notations of labels in a column's cells: names, lists, objects, separators, tags, 0 and 1, shares.

Shares are numbers from 0 to 1, one for each class. A notation is recognised over the distinct cells of all
rows. Both the guess of `mlcl init` and the reader of a column whose kind is given use `recognise`.
"""

from __future__ import annotations

import ast
import json
import math
import re
import unicodedata
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Literal

SEPARATORS = (";", "|", "\n", ",")
"""Separators of labels that are recognised in a text."""
MISSING = frozenset({
    "", "nan", "-nan", "NaN", "NAN", "None", "null", "Null", "NULL", "\\N", "<NA>", "NA", "N/A", "n/a",
    "#N/A", "NaT",
})  # fmt: skip
"""Missing values as pandas, R, SQL and spreadsheets write them."""
FLAGS = {
    **dict.fromkeys(("1", "true", "yes", "t", "y", "ja", "oui"), True),
    **dict.fromkeys(("0", "false", "no", "f", "n", "nein", "non"), False),
}
"""Maps a lower-case cell of a column of 0 and 1 to whether the row has the class."""
NUMBERED = {"score", "value", "label", "start", "end"}
"""Keys whose integer, in an object with a name, is not the label's number but, for example, a score."""
ENTITY = re.compile(r"&#?\w+;")
"""Matches a character as HTML writes it, such as `&amp;`."""
DECIMAL = re.compile(r"[+-]?\d+,\d+")
THOUSANDS = re.compile(r"[+-]?(\d{1,2}(,\d{3})+|\d+)")
"""Matches a whole number, also with commas between thousands, if 1 or 2 digits precede the first comma."""
TAGS = re.compile(r"(\s*<[^<>]+>)+\s*")
HASHTAGS = re.compile(r"(#[^\s#]+\s*)+")
TAGGED: dict[Literal["tags", "hashtags"], re.Pattern[str]] = {"tags": TAGS, "hashtags": HASHTAGS}
INVISIBLE = frozenset("\u034f\u115f\u1160\u3164\uffa0")
"""Invisible characters that Unicode classes as letters or marks."""
WHOLE = re.compile(r"([+-]?(?:0|[1-9]\d*))(?:\.0?)?", re.ASCII)
"""Matches a whole number, also as pandas writes it in a column with missing values, such as `3.0`."""
_ARRAY = re.compile(
    r"(?:(?:np\.|torch\.)?(?:array|tensor)|frozenset)\(([\[{].*[\]}])(?:,\s*dtype=[^)\s]+)?\)", re.DOTALL
)
"""Matches an array as NumPy or PyTorch represents it, and a frozen set of Python."""
_QUOTED = re.compile(r"""\(\s*['"]|\{\s*(?:"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')\s*[,}]""", re.DOTALL)
"""Matches the beginning of a tuple, or of a set, of texts."""
_SCALAR = re.compile(r"np\.(?:(?:str|bool|u?int|float)\w*\(([^()]*)\)|(True|False)_)")
"""Matches an item of a list as NumPy 2 represents it, such as `np.int64(1)`."""
_TOKEN = re.compile(r"""\s*("(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'|,|[^\s,'"\[\]]+)\s*""", re.DOTALL)
"""Matches a part of a list: an item in quotes, a comma, or a word."""

Cell = str | tuple[str, ...]
"""A cell as `cell_of` reads it: a text, or the items of a list."""
Form = Literal["names", "divided", "tags", "hashtags", "indicators", "shares"]


@dataclass(frozen=True)
class Notation:
    """The notation of a column's labels; `separator` is the text between labels, if cells are split."""

    form: Form
    separator: str | None = None

    def labels(self, cell: Cell) -> Sequence[str]:
        """Returns the labels in a cell as they are written; "" and other missing values may be among them."""
        if isinstance(cell, tuple):
            return cell
        if self.form == "tags":
            return re.findall(r"<([^<>]+)>", cell)
        if self.form == "hashtags":
            return re.findall(r"#([^\s#]+)", cell)
        return cell.split(self.separator) if self.separator else (cell,)

    def in_words(self) -> str:
        """Describes the notation in words; empty for the form `names`."""
        descriptions = {
            "divided": f"labels are divided at {self.separator!r}",
            "tags": "labels stand in <>",
            "hashtags": "labels begin with #",
            "indicators": "lists of 0 and 1, a number for each class",
            "shares": "lists of shares, a number for each class",
        }
        return descriptions.get(self.form, "")


def cell_of(value: Any) -> Cell:
    """Converts a value to a text, or a list or object to a tuple of labels. Raises ValueError for others."""
    if isinstance(value, list | tuple):
        return tuple(map(_parse_item, value))
    if isinstance(value, Mapping):
        return _flagged_names(value)
    lines = value.split("\n") if isinstance(value, str) else [value]
    text = re.sub(r"\n?([;|,])\n?", r"\1", "\n".join(filter(None, map(text_of, lines))))
    if array := _ARRAY.fullmatch(text):
        text = array[1]
    if text.startswith("[{"):
        return tuple(map(_parse_item, _parse_literal(text, list)))
    if text in ("{}", "set()", "()", "frozenset()"):
        return ()
    if _QUOTED.match(text):
        with suppress(ValueError):
            values = _parse_literal(text, tuple if text[0] == "(" else set)
            return tuple(map(_parse_item, values if text[0] == "(" else sorted(values, key=text_of)))
    if text.startswith("{") and ":" in text:
        return _flagged_names(_parse_literal(text, dict))
    items = items_of(text)
    return text if items is None else tuple(map(_parse_item, items))


def _parse_literal(text: str, kind: type[Any]) -> Any:
    for parse in (json.loads, ast.literal_eval):
        try:
            value = parse(text)
        except (SyntaxError, TypeError, ValueError, RecursionError, MemoryError):
            continue
        if isinstance(value, kind):
            return value
    raise ValueError(f"begins with {text[0]} and is no {'list' if kind is list else 'object'} of labels")


def _flagged_names(value: Mapping[str, Any]) -> tuple[str, ...]:
    """Returns the names with 1 in an object of a 0 or 1 for each class, or Label Studio's `choices`."""
    if value.keys() == {"choices"} and isinstance(value["choices"], list):
        return tuple(map(_parse_item, value["choices"]))
    states = {_parse_item(name): FLAGS.get(text_of(flag).lower()) for name, flag in value.items()}
    if None in states.values() or len(states) < len(value):
        raise ValueError("an object without a 0 or 1 for each class")
    return tuple(name for name, state in states.items() if state)


def _parse_item(value: Any) -> str:
    if isinstance(value, Mapping):
        # A list of objects, such as {"id": 28, "name": "Action"}.
        if not {"name", "label"} & value.keys():
            raise ValueError("an object without a name or label")
        _check_alone(value)
        value = value.get("name", value.get("label"))
    return text_of(value)


def _check_alone(value: Mapping[str, Any]) -> None:
    """Raises ValueError for an object with a score, a truth value or a position beside its name."""
    name = "name" if "name" in value else "label"
    for key, entry in value.items():
        is_number = isinstance(entry, float | bool) or (isinstance(entry, int) and key in NUMBERED)
        if key != name and is_number:
            raise ValueError(f"an object with the {key} {entry} beside its name")


def text_of(value: Any) -> str:
    """Converts a text or a number to the name of a class; a missing value becomes "".

    Names are brought to the Unicode form NFC, with ordinary spaces and without invisible characters, so that
    equal-looking names are equal. Raises ValueError for any other value, and for a text with a NUL.
    """
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return ""
    if isinstance(value, float):
        if value.is_integer() and abs(value) < 2**53:  # an integer that pandas made a float
            return str(int(value))
        short_text = f"{value:g}"
        return short_text if float(short_text) == value else repr(value)
    if isinstance(value, bytes | Mapping | list | tuple | set):
        raise ValueError("no name of a class")
    text = str(value)
    if not (text.isascii() and text.isprintable()):
        if not is_unicode(text):
            raise ValueError("not Unicode text: half of a surrogate pair")
        if "\0" in text:
            raise ValueError("a NUL: is it UTF-16?")
        text = unicodedata.normalize("NFC", text).translate(_VISIBLE)
    return text.strip()


class _Visible(dict[int, str]):
    """Maps a code point to its character, to a space for white space, and to "" if it is invisible."""

    def __missing__(self, code: int) -> str:
        sign = chr(code)
        is_tag = "\U000e0020" <= sign <= "\U000e007f"  # letters of a flag such as Scotland's
        hidden = (unicodedata.category(sign) in ("Cc", "Cf") and not is_tag) or "\ufe00" <= sign <= "\ufe0f"
        self[code] = " " if sign.isspace() else "" if hidden or sign in INVISIBLE else sign
        return self[code]


_VISIBLE = _Visible()


def is_unicode(text: str) -> bool:
    """Whether a text can be encoded in UTF-8; lone surrogates, which JSON can escape, cannot."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def items_of(text: str) -> list[str] | None:
    """Returns the items of a list as JSON, Python or NumPy writes it; None for a text without [ at its start.

    Raises ValueError for a text that begins with [ and cannot be read.
    """
    if not text.startswith("["):
        return None
    text = _SCALAR.sub(lambda item: item[1] or item[2], text)
    tokens, place, end = list[str](), len(text) - len(text[1:].lstrip()), len(text) - 1
    while place < end and (match := _TOKEN.match(text, place, end)):
        tokens.append(match[1])
        place = match.end()
    groups = _split_at_commas(tokens) if "," in tokens else [[token] for token in tokens]
    bare_tokens = [token for token in tokens if token[0] not in "'\","]
    names = [token for token in bare_tokens if number_of(token) is None and token not in ("True", "False")]
    is_text = "," not in tokens and len(tokens) > 1 and bool(names)
    is_mixed = any(len(group) > 1 and not set(group) <= set(bare_tokens) for group in groups)
    if text[end] != "]" or place < end or not all(groups) or is_text or is_mixed or "..." in bare_tokens:
        raise ValueError("begins with [ but is not a list of labels")
    return [" ".join(map(_unquote, group)) for group in groups]


def _split_at_commas(tokens: list[str]) -> list[list[str]]:
    groups: list[list[str]] = [[]]
    for token in tokens:
        if token == ",":
            groups.append([])
        else:
            groups[-1].append(token)
    return groups if groups[-1] else groups[:-1]


def _unquote(token: str) -> str:
    try:
        if token[0] == '"':
            return str(json.loads(token, strict=False))
        return str(ast.literal_eval(token)) if token[0] == "'" else token
    except SyntaxError as error:
        raise ValueError(str(error)) from None


def number_of(text: str) -> float | None:
    """Parses a text as a finite number; None for any other text."""
    try:
        number = float(text)
    except ValueError:
        return None
    return number if math.isfinite(number) else None


def recognise(cells: Collection[Cell], class_names: Collection[str] = ()) -> Notation | None:
    """Returns the notation of the distinct `cells`, except `class_names`; None if it is unclear."""
    lists = [cell for cell in cells if isinstance(cell, tuple)]
    if form := _number_form(lists, class_names):
        return Notation(form)
    texts = [
        cell for cell in cells if isinstance(cell, str) and cell not in MISSING and cell not in class_names
    ]
    for tag_form, pattern in TAGGED.items():
        n_matches = sum(bool(pattern.fullmatch(text)) for text in texts)
        if 2 * n_matches > len(texts) > 1:
            return Notation(tag_form) if n_matches == len(texts) else None
    plain_texts = list(map(without_entities, texts))
    signs = [sign for sign in SEPARATORS if any(sign in text for text in plain_texts)]
    if len(signs) > 1 or (signs == [";"] and plain_texts != texts):
        return None
    # Numbers with a decimal comma, or with commas between thousands, may be several numbers.
    if "," in signs and any(all(map(pattern.fullmatch, texts)) for pattern in (DECIMAL, THOUSANDS)):
        return None
    sign = signs[0] if signs else " "
    part_lists = [tuple(part.strip() for part in text.split(sign)) for text in texts]
    if all(len(parts) > 1 for parts in part_lists) and (form := _number_form(part_lists, class_names)):
        return Notation(form, sign)
    if (sign in ",\n" and not divides(texts, sign)) or (
        sign == " " and not class_names and divides(texts, " ")
    ):
        return None
    return Notation("divided", sign) if signs else Notation("names")


def without_entities(text: str) -> str:
    """Returns a text in which & replaces each HTML character reference, such as `&lt;`."""
    return ENTITY.sub("&", text)


def _number_form(
    lists: Sequence[tuple[str, ...]], class_names: Collection[str]
) -> Literal["indicators", "shares"] | None:
    """Returns the form of lists of a number for each class, equally long or with repeats; None for others."""
    items = {item for row in lists for item in row}
    values = {
        item: float(FLAGS[key]) if (key := item.lower()) in FLAGS else number_of(item) for item in items
    }
    longest = max(map(len, lists), default=0)
    if longest < 2 or None in values.values() or (items <= set(class_names) and len(class_names) != longest):
        return None
    flags = {item for item, value in values.items() if value in (-1, 0, 1)}
    bounded = all(value is not None and -1 <= value <= 1 for value in values.values())
    repeats = any(len(set(row)) < len(row) for row in lists)
    binary = 2 * sum(set(row) <= flags for row in lists) >= len(lists)
    if not (repeats and (bounded or binary)) and not (bounded and all(len(row) == longest for row in lists)):
        return None
    return "shares" if bounded and flags != items else "indicators"


def divides(cells: Collection[str], separator: str) -> bool:
    """Whether a separator seems to divide labels: it occurs, with at most as many distinct parts as cells."""
    return any(separator in cell for cell in cells) and len(parts_of(cells, separator)) <= len(cells)


def parts_of(cells: Collection[str], separator: str) -> set[str]:
    """Splits each text at the separator and returns the distinct parts."""
    return {part.strip() for cell in cells for part in cell.split(separator)}


def find_joined(cells: Collection[str], separator: str) -> str | None:
    """Returns the first cell with the separator whose parts are all cells as well; None if there is none."""
    for cell in cells:
        parts = [part.strip() for part in cell.split(separator)]
        if len(parts) > 1 and all(part in cells and part not in MISSING for part in parts):
            return cell
    return None


def single_text(cell: Cell) -> str | None:
    """Returns the text of a cell, or the item of a list with one item; None for other lists."""
    return cell if isinstance(cell, str) else (cell[0] if len(cell) == 1 else None)


def form_of(label: str) -> str:
    """Returns a key that all spellings of a label share: lower case, and a whole number without `.0`.

    Runs of spaces become one space. Quotes and brackets at the ends are removed if the label has a letter or
    digit. Codes such as `250.00` and `0250` stay as they are.
    """
    if match := WHOLE.fullmatch(label):
        return match[1]
    form = " ".join(label.casefold().split())
    return form.strip("'\"[]{}() ") if any(map(str.isalnum, form)) else form
