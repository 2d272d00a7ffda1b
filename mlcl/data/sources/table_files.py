"""Files of a user's rows: CSV, JSON, Parquet and lines of texts, images or vectors, with labels by column.

All columns are read and checked before anything is written; the contents are read again when they are
written, so that they are never all in memory.
"""

from __future__ import annotations

import codecs
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic import Field, field_validator

from mlcl.data.format import GROUP, SPLITS
from mlcl.data.source import NewDataset, Source, Workspace
from mlcl.data.sources.common.distribution import file_state, hash_of_files
from mlcl.data.split_assignment import (
    SPLIT_NAMES,
    RowKeys,
    digest_of,
    divide,
    image_digest,
    split_of_name,
    twin_form,
    with_eval_as_test,
)
from mlcl.data.tables.files import ENCODING, Dialect, TableFile
from mlcl.data.tables.formats import open_table
from mlcl.data.tables.labels import Labels
from mlcl.data.tables.notation import MISSING, is_unicode, text_of
from mlcl.data.tables.options import HierarchyOf, TableOptions
from mlcl.data.tables.rows import EMPTY, Content, ImageFiles, TableRows, Unreadable, read_contents
from mlcl.data.tables.spaces import check_levels, read_columns, spaces_of, state_of
from mlcl.data.writer import in_batches
from mlcl.errors import UserError

SPLIT = "split"
MOST_LEFT_OUT = 0.95
"""The largest accepted fraction of rows without a content; a larger one points to a wrong column."""


class TextFileOptions(TableOptions):
    """The options of the sources that read text files."""

    encoding: str = Field(ENCODING, description="utf-8-sig: UTF-8 with or without a byte order mark")

    @field_validator("encoding")
    @classmethod
    def _check_encoding(cls, encoding: str) -> str:
        try:
            codecs.lookup(encoding)
        except LookupError:
            raise ValueError("unknown encoding") from None
        return encoding


class CsvOptions(TextFileOptions):
    """The options of the source `csv`."""

    delimiter: str | None = Field(
        None, min_length=1, max_length=1, description="between fields; default: as the first lines have it"
    )
    header: bool | None = Field(
        None, description="whether the first line names the columns; default: yes, unless it looks like data"
    )


def state(options: TableOptions) -> list[Any]:
    """Returns plain data that changes when a file changes: a table, or an image that a table names.

    Raises UserError for a missing table, and for a table of images that cannot be read.
    """
    files = [("path", path) for path in options.path]
    for name, label in options.labels.items():
        if isinstance(label, HierarchyOf) and label.parents is not None:
            files.append((f"labels.{name}.parents", label.parents))
    for key, file in files:
        if not file.is_file():
            raise UserError("no such file", file=file, key=f"data.options.{key}")
    entries = [part for _, file in files for part in file_state(file)]
    if options.modality == "image":
        entries.append(hash_of_files(options.path[0].parent, _image_files(options)))
    return entries


def _image_files(options: TableOptions) -> Iterator[Path]:
    """Yields the image files that the tables name; none for tables that hold the images themselves."""
    for image in _contents(options, _open_tables(options)):
        if isinstance(image, bytes):
            return
        if isinstance(image, Path):
            yield image


def _open_tables(options: TableOptions) -> list[TableFile]:
    dialect = Dialect(**options.model_dump(include={"encoding", "delimiter", "header"}))
    tables = [open_table(path, dialect) for path in options.path]
    for table in tables:
        _check_columns(options, table)
    return tables


def read(options: TableOptions, split_seed: int, _work: Workspace) -> NewDataset:
    """Returns the data set of tables. Raises UserError with file, line (or row) and column of a bad value."""
    tables = _open_tables(options)
    check_levels(options)
    columns = options.columns(tables[0].columns)
    other_columns = {column for key, column in columns.items() if key.partition(".")[0] != options.modality}
    rows = TableRows.of(tables, other_columns)
    if not len(rows):
        raise UserError("no rows", file=options.path[0])
    content = _read_contents(options, rows)
    kept_rows = [row for row in range(len(rows)) if row not in content.problems]
    left_out = _note_left_out(rows, content.problems, options) if content.problems else []
    labels = read_columns(options, rows.take(kept_rows))
    dropped = {row for item in labels.values() if isinstance(item, Labels) for row in item.left_out}
    indices = [row for row in range(len(kept_rows)) if row not in dropped]
    kept_rows = [kept_rows[row] for row in indices]
    rows = rows.take(kept_rows)
    labels = {name: item.take(indices) for name, item in labels.items()}
    for name, item in labels.items() if dropped else ():
        if isinstance(item, Labels) and not any(item.names):
            raise UserError("no row with a label is left", file=options.path[0], key=f"labels.{name}")
    spaces = spaces_of(options, rows, labels)
    sets = {name: item for name, item in labels.items() if isinstance(item, Labels)}
    keys = _make_row_keys(options, rows, kept_rows, content)
    notes = divide(keys, [item.indices(spaces[n]) for n, item in sets.items()], options.fractions, split_seed)
    notes += [note for item in sets.values() for note in item.notes]
    read_from = [name for key, name in columns.items() if key.startswith("labels.")]
    _check_labelled(rows, keys.splits, read_from, [item.names for item in sets.values()])
    if options.split is None and SPLIT in tables[0].columns:
        notes.append(f"the column {SPLIT} is not read: split={SPLIT} takes the splits from it")

    def place_of(row_id: str) -> tuple[Path, str]:
        row = keys.ids.index(row_id)
        return rows.file(row), keys.places[row]

    data_columns: dict[str, Any] = {"id": keys.ids, "split": keys.splits}
    if keys.groups:
        data_columns[GROUP] = keys.groups
    for name, item in labels.items():
        data_columns |= item.columns(name, spaces[name])
    return NewDataset(
        options.modality,
        spaces,
        in_batches(data_columns, options.modality, _contents_of_rows(options, tables, set(kept_rows))),
        list(dict.fromkeys([*notes, *left_out])),
        options.allow_untrained,
        content.dim,
        grouped=bool(keys.groups),
        name=options.name or options.path[0].stem,
        origin=", ".join(path.name for path in options.path),
        licence=options.licence,
        place_of=place_of,
    )


def _check_columns(options: TableOptions, table: TableFile) -> None:
    if not options.content or not options.labels:
        raise UserError(
            "say which column it is", file=table.path, key="labels" if options.content else "text",
            found=f"the columns {', '.join(table.columns)}",
            allowed="for instance text body and labels {topic: {kind: single, column: topic}}; "
            "`mlcl init FILE` looks and asks",
        )  # fmt: skip
    for key, column in options.columns(table.columns).items():
        table.require(column, key)


def _check_labelled(
    rows: TableRows, splits: Sequence[str], columns: Sequence[str], names: Sequence[Sequence[tuple[str, ...]]]
) -> None:
    """Raises UserError if all label columns are blank in a split, as in the test files of contests.

    `names` has the labels of each row by label space. A cell `None` is blank unless a class has this name.
    """
    labelled = {
        split
        for split, *cells in zip(splits, *(rows.frame[name] for name in columns), strict=True)
        if not all(map(_is_blank, cells))
    }
    labelled |= {split for column in names for split, labels in zip(splits, column, strict=True) if labels}
    for split, count in Counter(splits).items():
        if split not in labelled:
            problem, allowed = f"no row of {split} has a label", f"labels, or no rows of {split}"
            raise UserError(problem, file=rows.tables[0].path, found=f"{count:,} rows", allowed=allowed)


def _is_blank(value: Any) -> bool:
    return value is None or value != value or (isinstance(value, str) and value.strip() in MISSING)


@dataclass
class _Contents:
    """The digest and twin form of each row's content, by row number, or the problem in reading it."""

    digests: dict[int, bytes] = field(default_factory=dict)
    twins: dict[int, str] = field(default_factory=dict)
    problems: dict[int, Unreadable] = field(default_factory=dict)
    dim: int | None = None


def _read_contents(options: TableOptions, rows: TableRows) -> _Contents:
    """Reads every row's content once. Raises UserError for a vector that is unreadable or of another size."""
    contents, column = _Contents(), options.content[0] if options.content else ""
    for row, value in enumerate(_contents(options, rows.tables)):
        if isinstance(value, str) and value.strip() in MISSING:
            value = Unreadable("the text says that it is missing")
        if isinstance(value, Unreadable):
            if options.modality == "vectors":
                raise rows.error(row, value.problem, column, value.found)
            contents.problems[row] = value
        elif isinstance(value, list):
            if not value or len(value) != (contents.dim or len(value)):
                problem = "no vector of the first row's size"
                raise rows.error(row, problem, column, f"{len(value)} numbers", contents.dim)
            contents.dim, contents.digests[row] = len(value), digest_of(str(value).encode())
        elif isinstance(value, str):
            contents.digests[row] = digest_of(value)
            if options.twins == "together":
                contents.twins[row] = twin_form(value)
        else:
            contents.digests[row] = image_digest(value if isinstance(value, bytes) else value.read_bytes())
    return contents


def _contents(options: TableOptions, tables: Sequence[TableFile]) -> Iterator[Content | Unreadable]:
    for table in tables:
        files = ImageFiles(table.path.parent)
        for frame in table.chunks(options.content):
            yield from read_contents(frame, options.modality, options.content, files)


def _contents_of_rows(
    options: TableOptions, tables: Sequence[TableFile], numbers: set[int]
) -> Iterator[str | bytes | list[float]]:
    """Yields the contents of the rows `numbers`, which are read a second time."""
    for row, content in enumerate(_contents(options, tables)):
        if row in numbers and not isinstance(content, Unreadable):
            yield content.read_bytes() if isinstance(content, Path) else content


def _note_left_out(rows: TableRows, problems: dict[int, Unreadable], options: TableOptions) -> list[str]:
    """Returns a note on rows without a text or an image file. Raises UserError if nearly all lack one."""
    first, modality = min(problems), options.modality
    if len(problems) > MOST_LEFT_OUT * len(rows):
        problem = f"{len(problems):,} of {len(rows):,} rows have no {modality}, the first"
        raise rows.error(first, problem, options.content[0], problems[first].found)
    causes = Counter(item.problem for item in problems.values() if item.problem != EMPTY)
    more = "".join(f"; {problem}: {count:,}" for problem, count in causes.items())
    article = "an image" if modality == "image" else "a text"
    note = f"rows without {article}, which are left out: {len(problems):,}, the first at {rows.place(first)}"
    return [note + more]


def _make_row_keys(
    options: TableOptions, rows: TableRows, numbers: Sequence[int], content: _Contents
) -> RowKeys:
    """Returns the `RowKeys` of the kept rows. Raises UserError for an empty id or group or a repeated id."""
    places = [rows.place(row) for row in range(len(rows))]
    ids = list(map(str, numbers)) if options.id is None else _read_filled_cells(rows, options.id)
    first_row: dict[str, int] = {}
    for row, row_id in enumerate(ids):
        if first_row.setdefault(row_id, row) != row:
            problem = f"id of {places[row]} stands in {places[first_row[row_id]]} too"
            raise UserError(problem, file=rows.file(row), key=options.id, found=row_id)
    return RowKeys(
        ids,
        places,
        [content.digests[row] for row in numbers],
        [] if options.group is None else _read_groups(rows, options.group),
        _read_splits(options, rows),
        [content.twins[row] for row in numbers] if content.twins else [],
    )


def _read_split_names(rows: TableRows, column: str) -> list[str]:
    """Returns the cells of a column of splits. Raises UserError for one that is no text or number."""
    names = []
    for row, value in enumerate(rows.frame[column]):
        try:
            names.append(text_of(value))
        except ValueError:
            raise rows.error(row, "unknown split", column, repr(value), SPLITS) from None
    return names


def _read_splits(options: TableOptions, rows: TableRows) -> list[str]:
    """Returns each row's split by the split column or file or folder names; empty if they name no splits."""
    if options.split is not None:
        names = _read_split_names(rows, options.split)
        split_of = with_eval_as_test({name: SPLIT_NAMES.get(name.lower()) for name in set(names)})
        flags = {name: state_of(name) for name in split_of}
        if set(flags.values()) <= {0, 1} and (flag_split := split_of_name(options.split)) is not None:
            other = "test" if flag_split == "train" else "train"
            return [flag_split if flags[name] else other for name in names]
        for row, name in enumerate(names):
            if split_of[name] is None:
                raise rows.error(row, "unknown split", options.split, name, SPLITS)
        return [str(split_of[name]) for name in names]
    by_file = _splits_of_names([path.name for path in options.path]) if len(options.path) > 1 else [None]
    by_folder = _splits_of_names([path.parent.name for path in options.path])
    if len(by_file) > 1 and set(by_file) == {None} and None not in by_folder:
        by_file = by_folder
    if None in by_file and set(by_file) != {None}:
        file, allowed = options.path[by_file.index(None)], "a name such as test.csv, or a column with split"
        raise UserError(
            "the name contains no split, unlike those of the other files", file=file, allowed=allowed
        )
    unclear = None in by_file or (len(set(by_file)) == 1 and "train" not in by_file)
    return [] if unclear else [str(by_file[table]) for table, _ in rows.keys]


def _splits_of_names(names: Sequence[str]) -> list[str | None]:
    """Returns the split that each name contains, or None."""
    split_of = with_eval_as_test({name: split_of_name(name) for name in names})
    return [split_of[name] for name in names]


def _read_filled_cells(rows: TableRows, column: str) -> list[str]:
    values = list(rows.frame[column])
    for row, value in enumerate(values):
        if value is None or value != value or (isinstance(value, str) and not value.strip()):
            raise rows.error(row, "empty", column)
        if isinstance(value, str) and not is_unicode(value):
            raise rows.error(row, "not Unicode text: half of a surrogate pair", column, value)
    return [str(value).strip() for value in values]


def _read_groups(rows: TableRows, column: str) -> list[str]:
    """Returns the group of each row. A number and its float form, such as `1` and `1.0`, are one group."""
    return [re.sub(r"(?<=\d)\.0+$", "", value) for value in _read_filled_cells(rows, column)]


def _make_source(name: str, title: str, options: type[TableOptions]) -> Source[Any]:
    return Source(
        name=name, title=title, licence="the file's own", version="4", options=options, read=read, state=state
    )


COLUMNS = "of texts, images or vectors, labels by column"
CSV = _make_source("csv", f"CSV files {COLUMNS}", CsvOptions)
JSONL = _make_source("jsonl", f"JSON objects, one a line or in an array, {COLUMNS}", TextFileOptions)
PARQUET = _make_source("parquet", f"Parquet files {COLUMNS}", TableOptions)
TXT = _make_source("txt", "text files, a row a line, its labels before it as fastText has them", CsvOptions)
