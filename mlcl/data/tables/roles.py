"""Guesses the roles of a table's columns: contents, labels, ids, splits, and columns that repeat others.

Texts, images and vectors are recognised from a sample. Everything else is computed from all rows, with the
reader of labels that also prepares the data set.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Literal

import pandas as pd

from mlcl.data.split_assignment import SPLIT_NAMES, split_of_name
from mlcl.data.tables.files import TableFile
from mlcl.data.tables.labels import CellColumn
from mlcl.data.tables.notation import (
    MISSING,
    Cell,
    Notation,
    divides,
    find_joined,
    number_of,
    parts_of,
    recognise,
    single_text,
    text_of,
)
from mlcl.data.tables.paths import PATH_SIGNS, path_sign
from mlcl.data.tables.rows import IMAGE, ImageFiles, TableRows
from mlcl.data.tables.spaces import UNCERTAIN, state_of
from mlcl.errors import UserError

SAMPLE = 5_000
"""The number of rows from which columns of texts, images and vectors are recognised."""
TEXT_NAMES = {
    "text", "body", "content", "review", "description", "sentence", "abstract", "message", "document",
    "comment", "tweet", "narrative", "summary", "utterance", "token",
}  # fmt: skip
LABEL_NAMES = {
    "label", "class", "category", "cat", "topic", "tag", "target", "y", "intent", "sentiment", "emotion",
    "code", "genre", "level", "l",
}  # fmt: skip
"""Words in names of label columns, in small letters, singular, without a number."""
ID_NAMES = {"id", "uid", "key", "uuid", "index", "idx"}
SPLIT_COLUMNS = {"split", "set", "fold", "subset", "partition", "usage"}
MOST_SPLITS = 10
"""The most distinct values with which a column named `split` counts as the split if no value is known."""
SPLIT_FLAG = re.compile(r"is_?(train|training|val|valid|validation|dev|test)", re.IGNORECASE)
"""Matches the name of a column of 0 and 1 that says which rows are in a split."""
INDEX = re.compile(r"__index_level_\d+__")
"""Matches the name of a column that is an index of pandas without a name."""
MOST_CLASSES = 2_000
MOST_UNNAMED = 20
"""A column of more distinct numbers is taken for counts or measures, unless its name is in LABEL_NAMES."""

Kind = Literal[
    "text", "image", "vectors", "single", "multi_label", "path", "flag", "share", "constant", "other"
]


@dataclass(frozen=True)
class ColumnRole:
    """The role of a column.

    `named` says whether its name is a common one for texts or labels. `words` is the average number of words
    of a text, `distinct` the number of distinct cells, and `sign` the separator of levels in paths. `problem`
    is the error that prevents reading the column as labels.
    """

    name: str
    kind: Kind
    named: bool
    words: float = 0.0
    distinct: int = 0
    example: str = ""
    notation: Notation | None = None
    sign: str | None = None
    column: CellColumn | None = None
    problem: UserError | None = None


@dataclass(frozen=True)
class ColumnRoles:
    """The roles of a table's columns; `id` and `split` name the columns of ids and of splits.

    `repeats` maps a redundant column to a text that names the column, or columns, with the same labels.
    """

    columns: tuple[ColumnRole, ...]
    rows: TableRows
    id: str | None = None
    split: str | None = None
    repeats: Mapping[str, str] = field(default_factory=dict)

    def of(self, *kinds: Kind) -> list[ColumnRole]:
        """Returns the columns of these kinds, common names first, then by descending number of words."""
        names = TEXT_NAMES if kinds == ("text",) else ()
        roles = [column for column in self.columns if column.kind in kinds]
        return sorted(roles, key=lambda role: (role.name.lower() not in names, not role.named, -role.words))

    def levels(self, columns: Sequence[ColumnRole]) -> list[str]:
        """Returns the columns' names as levels, coarse to fine; empty if a class has several parents.

        Columns with half of the fine classes in common, such as a first and a second label, are no levels.
        """
        by_classes = sorted(columns, key=lambda column: column.distinct)
        # A path may end early, so a column with fewer blanks is coarser, even if it has more classes.
        for ordered in (sorted(by_classes, key=lambda column: -int((_codes(column) >= 0).sum())), by_classes):
            is_chain = all(
                _determines(_codes(fine), _codes(coarse)) and not _has_shared_classes(fine, coarse)
                for coarse, fine in pairwise(ordered)
            )
            if len(ordered) > 1 and is_chain:
                return [column.name for column in ordered]
        return []

    def sign_in(self, name: str) -> str | None:
        """Returns the sign between levels that is in at least half of a column's filled cells, or None."""
        try:
            cells = [text for value in self.rows.frame[name] if (text := text_of(value)) not in MISSING]
        except ValueError:  # lists
            return None
        signs = [sign for sign in PATH_SIGNS if 2 * sum(sign in cell for cell in cells) >= len(cells)]
        return signs[0] if cells and signs else None


def roles_of(
    tables: Sequence[TableFile], label_columns: Collection[str] = (), *, uncertain: bool = False
) -> ColumnRoles:
    """Guesses the roles of the columns of one or several tables; `label_columns` are labels.

    `uncertain` says that -1 means uncertain among 0 and 1.
    """
    table = tables[0]
    names = list(dict.fromkeys(table.columns))
    sample, files = table.frame(names, SAMPLE), ImageFiles(table.path.parent)
    others = [name for name in names if name not in label_columns]
    contents = [role for name in others if (role := _content(name, sample[name], files))]
    # A column without a name is an index that pandas has written, unless it is given as labels.
    unread = {"", *(role.name for role in contents), *filter(INDEX.fullmatch, names)}
    rest = [name for name in names if name in label_columns or name not in unread]
    rows = TableRows.of(tables, rest)
    id_name = next((name for name in rest if name not in label_columns and _is_id(name, rows)), None)
    split = next((name for name in rest if name not in label_columns and _is_split(name, rows)), None)
    states = (0, 1, UNCERTAIN) if uncertain else (0, 1)
    label_names = [name for name in rest if name not in (id_name, split)]
    labels = [_label_role(rows, name, name in label_columns, states) for name in label_names]
    return ColumnRoles((*contents, *labels), rows, id_name, split, _find_redundant(rows, labels))


def _content(name: str, values: pd.Series[Any], files: ImageFiles) -> ColumnRole | None:
    """Returns the role of a column of texts, images or vectors; None for any other column."""
    items = [value for value in values if value is not None and value == value]
    first = next(iter(items), None)
    if isinstance(first, bytes) or (isinstance(first, dict) and "bytes" in first):
        return ColumnRole(name, "image", named=True)
    if isinstance(first, list):
        return _list_role(name, items)
    texts = [value.strip() for value in items if isinstance(value, str) and value.strip() not in MISSING]
    cells = list(dict.fromkeys(texts))
    words = sum(len(text.split()) for text in texts) / max(1, len(texts))
    if not texts:
        return None
    distinct = len(cells) > len(texts) / 2
    if distinct and all(IMAGE.search(cell) or (words < 2 and files.has(cell)) for cell in cells[:20]):
        return ColumnRole(name, "image", named=True, example=cells[0])
    n_lists = sum(text.startswith("[") and text.endswith("]") for text in texts)
    if 2 * n_lists > len(texts) or all(number_of(text) is not None for text in cells[:100]):
        return None
    named = _has_word(name, TEXT_NAMES)
    rare = len(cells) > min(MOST_CLASSES, len(texts) / 2) or (named and words >= 3 and len(cells) > 20)
    if rare and not _are_labels(cells, words, _has_word(name, LABEL_NAMES)) and (named or words >= 3):
        return ColumnRole(name, "text", named, words, example=cells[0])
    return None


def _are_labels(cells: Sequence[str], words: float, named: bool) -> bool:
    """Whether distinct texts are sets of labels rather than sentences."""
    notation = recognise(cells)
    if notation is not None and notation.form in ("tags", "hashtags"):
        return True
    if path_sign(cells) is not None:
        return True
    for sign in ";|,":
        divided = sum(sign in cell for cell in cells) >= len(cells) / 2
        # Sentences share parts between commas, too, but not as many as label sets do.
        parts = parts_of(cells, sign)
        short = sum(len(part.split()) for part in parts) / len(parts) <= (2 if sign == "|" or named else 0)
        if divided and (len(parts) <= len(cells) / 2 or (sign != "," and short)):
            return True
    return named and words < 8


def _list_role(name: str, lists: Sequence[list[Any]]) -> ColumnRole | None:
    items = [item for cell in lists[:1_000] for item in cell]
    longest = max(map(len, lists), default=0)
    if items and all(isinstance(item, str) for item in items):
        are_tokens = len(set(items)) > MOST_CLASSES or any(len(cell) > len(set(cell)) + 3 for cell in lists)
        if are_tokens or (_has_word(name, TEXT_NAMES) and not _has_word(name, LABEL_NAMES)):
            return ColumnRole(name, "text", True, longest, example=" ".join(map(str, lists[0]))[:80])
    are_floats = bool(items) and all(isinstance(item, float) for item in items)
    if are_floats and all(len(cell) == longest for cell in lists) and not set(items) <= {0.0, 1.0, -1.0}:
        are_shares = all(0 <= item <= 1 for item in items) and longest <= MOST_UNNAMED
        return None if are_shares else ColumnRole(name, "vectors", True)
    return None


def _label_role(rows: TableRows, name: str, is_label: bool, states: Collection[int]) -> ColumnRole:
    """Determines the role of a column that holds no content, from all of its rows.

    It is a column of 0 and 1 if nine in ten filled cells are in one of the `states` of `state_of`.
    """
    named = _has_word(name, LABEL_NAMES)
    try:
        column = CellColumn.of(rows, name)
    except UserError as error:
        if is_label:
            raise
        return ColumnRole(name, "other", named, problem=error)
    missing_texts = column.missing_texts()
    cells = [cell for cell in column.first if cell and cell not in missing_texts]
    n_filled = sum(cell not in missing_texts for cell in column.of_row)
    n_flags = sum(isinstance(cell, str) and state_of(cell) in states for cell in column.of_row)
    if split_of_name(name) is not None and not is_label:
        return ColumnRole(name, "other", False)
    sign = path_sign(column.of_row)
    kind, notation = _kind(cells, n_filled, is_label or named, is_label, 10 * n_flags >= 9 * n_filled > 0)
    if kind in ("single", "multi_label", "other") and sign is not None:
        kind = "path"
    example = next(iter(cells), "")
    example_text = ", ".join(example) if isinstance(example, tuple) else example
    is_common = named and 2 * n_filled >= len(rows)
    return ColumnRole(name, kind, is_common, 0.0, len(cells), example_text, notation, sign, column)


def _kind(
    cells: Sequence[Cell], n_filled: int, named: bool, is_label: bool, mostly_flags: bool
) -> tuple[Kind, Notation | None]:
    texts = [text for cell in cells if (text := single_text(cell)) is not None]
    numbers = [number for text in texts if (number := number_of(text)) is not None]
    texts = [cell for cell in cells if isinstance(cell, str)]
    if len(texts) < len(cells):
        return "multi_label", recognise(cells)
    if mostly_flags or (texts and {state_of(text) for text in texts} == {UNCERTAIN}):
        # Any other cell is an error, with its line, when the labels are read.
        return ("flag" if mostly_flags else "other"), None
    if len(cells) < 2:
        return "constant", None
    if len(numbers) == len(texts):
        are_shares = all(0 <= number <= 1 for number in numbers)
        are_counts = len(cells) > MOST_UNNAMED and not named
        if are_shares or are_counts or any(number % 1 for number in numbers):
            return ("share" if are_shares else "other"), None
    notation = recognise(texts)
    joiners = {"&", "and", "or", "/", "+", "-"} & parts_of(texts, " ")
    repeated = named and 2 * len(parts_of(texts, " ")) <= len(texts)
    if notation is None and divides(texts, " ") and not joiners and (repeated or find_joined(texts, " ")):
        notation = Notation("divided", " ")
    if notation is None or notation.form != "names":
        return "multi_label", notation
    rare = len(cells) > min(MOST_CLASSES, n_filled / 2)
    return ("other" if rare and not is_label else "single"), None


def _codes(role: ColumnRole) -> Any:
    """Numbers the distinct values of a column and returns the number of each row, -1 for a missing value."""
    column = role.column
    assert column is not None
    missing_texts = column.missing_texts()
    code_of_cell = {cell: -1 if cell in missing_texts else i for i, cell in enumerate(column.first)}
    return pd.Series([code_of_cell[cell] for cell in column.of_row])


def _determines(fine: pd.Series[int], coarse: pd.Series[int]) -> bool:
    """Whether each fine value has only one coarse value in the rows with both; False without such rows."""
    pairs = pd.DataFrame({"fine": fine, "coarse": coarse})[(fine >= 0) & (coarse >= 0)].drop_duplicates()
    return bool(len(pairs)) and not pairs["fine"].duplicated().any()


def _has_shared_classes(fine: ColumnRole, coarse: ColumnRole) -> bool:
    """Whether half of the fine classes, and at least two, are coarse classes too and below another class."""
    assert fine.column is not None
    assert coarse.column is not None
    pairs = set(zip(fine.column.of_row, coarse.column.of_row, strict=True))
    cells = {cell for pair in pairs for cell in pair} - MISSING
    shared = {one for one, two in pairs if {one, two} <= cells and one != two and one in coarse.column.first}
    return len(shared) > 1 and 2 * len(shared) >= fine.distinct


def _find_redundant(rows: TableRows, labels: Sequence[ColumnRole]) -> dict[str, str]:
    """Maps each redundant column to the column that has its labels, or to `the columns A, B` of flags.

    If a column of names and a column of numbers have the same labels, the column of numbers is redundant.
    """
    roles = [role for role in labels if role.kind == "single" or (role.kind == "flag" and role.distinct > 1)]
    ordered = sorted(roles, key=lambda role: (number_of(role.example) is not None, not role.named))
    codes = {role.name: _codes(role) for role in ordered}
    repeats: dict[str, str] = {}
    for index, role in enumerate(ordered):
        for other in ordered[:index]:
            one, two = codes[role.name], codes[other.name]
            alike = role.distinct == other.distinct and not role.kind == other.kind == "flag"
            if alike and other.name not in repeats and (one < 0).equals(two < 0) and _determines(one, two):
                repeats[role.name] = other.name
                break
    flags = [role.name for role in labels if role.kind == "flag"]
    if len(flags) > 1:
        flag_sets = [[name for name, text in zip(flags, row, strict=True) if state_of(text_of(text)) == 1]
                     for row in rows.frame[flags].itertuples(index=False, name=None)]  # fmt: skip
        for role in labels:
            if role.kind == "multi_label" and role.notation is not None and role.column is not None:
                lists = map(role.notation.labels, role.column.of_row)
                if all(sorted(cell) == sorted(names) for cell, names in zip(lists, flag_sets, strict=True)):
                    repeats[role.name] = f"the columns {', '.join(flags)}"
    return repeats


def _has_word(column: str, names: Collection[str]) -> bool:
    """Whether a word in the column's name, in the plural or singular, is one of `names`."""
    words = [word.lower() for word in re.findall(r"[A-Z]?[a-z]+\d*|[A-Z]+\d*", column)]
    forms = {form for word in words for form in _singular_forms(re.sub(r"(?<!^y)\d+$", "", word))}
    return bool(forms & set(names))


def _singular_forms(word: str) -> set[str]:
    return {word, word.removesuffix("s"), word.removesuffix("es"), word.removesuffix("ies") + "y"}


def _is_id(name: str, rows: TableRows) -> bool:
    lower_name = name.lower()
    if lower_name not in ID_NAMES and not re.search(r"[_ ]id$|[a-z]Id$|ID$", name):
        return False
    values = set(map(str, rows.frame[name]))
    has_blank = "" in values or bool(rows.frame[name].isna().any())
    return 1 < len(values) == len(rows) and not has_blank


def _is_split(name: str, rows: TableRows) -> bool:
    values = {text.strip().lower() for text in set(map(str, rows.frame[name]))}
    if SPLIT_FLAG.fullmatch(name):
        return len(values) > 1 and {state_of(value) for value in values} == {0, 1}
    splits = values & SPLIT_NAMES.keys()
    # An unknown value is an error, with its line, when the split is read.
    if name.lower() in SPLIT_COLUMNS and (splits or (name.lower() == "split" and len(values) <= MOST_SPLITS)):
        return True
    return len(splits) > 1 and all(value in splits or text_of(value) in MISSING for value in values)
