"""Files of rows, read one row at a time: CSV, TSV, JSON lines and Parquet."""

from __future__ import annotations

import codecs
import csv
import json
from collections.abc import Callable, Collection, Generator, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from mlcl.errors import UserError, did_you_mean

DELIMITERS = ",;\t|"
"""What a CSV file may have between its fields."""
ENCODING = "utf-8-sig"
"""UTF-8 with or without a byte order mark; CSV may have that of UTF-16 instead."""
LONGEST_FIELD = 1 << 27
"""Characters of one field of a CSV file; the module's own limit of 131,072 is short for clinical notes."""
ROWS_AT_ONCE = 256


class Row(NamedTuple):
    """One row: its file, what messages call its place ("line 7"), and its values by column."""

    file: Path
    place: str
    values: Mapping[str, Any]

    def error(
        self, problem: str, column: str, found: object = None, allowed: object = None, more: str = ""
    ) -> UserError:
        """The error for a value of this row; `more` follows its place."""
        where = f"{problem} at {self.place}{more}"
        return UserError(where, file=self.file, key=column, found=found, allowed=allowed)


@dataclass(frozen=True)
class TableFile:
    """A file of rows. `rows(columns)` reads them anew, with these of its columns at least."""

    path: Path
    columns: tuple[str, ...]
    rows: Callable[[Collection[str]], Iterator[Row]]

    def require(self, column: str, key: str, allowed: object = None) -> None:
        """Raise UserError for a column that is not there once; `key` names it in the user's words."""
        if (count := self.columns.count(column)) != 1:
            hint = f"no such column{did_you_mean(column, self.columns)}"
            problem, allowed = "this column occurs twice" if count else hint, allowed or list(self.columns)
            raise UserError(problem, file=self.path, key=key, found=column, allowed=allowed)


def open_table(path: Path, encoding: str = ENCODING) -> TableFile:
    """The table in a file, by its suffix; `encoding` is of CSV. Raises UserError for none of `FORMS`."""
    if not path.is_file():
        raise UserError("no such file", file=path)
    if path.suffix.lower() not in FORMS:
        found = path.suffix or "no suffix"
        raise UserError("not a form that can be read", file=path, found=found, allowed=list(FORMS))
    read = FORMS[path.suffix.lower()]
    return read(path) if encoding == ENCODING else csv_table(path, encoding)


def csv_table(path: Path, encoding: str = ENCODING, delimiter: str | None = None) -> TableFile:
    """A CSV file with a header line; without `delimiter` the sign of `DELIMITERS` that the header line
    has most often.

    Raises UserError with the line for what is no CSV, no text, or a record of another length.
    """
    with _decoding(path, [1], encoding):
        if encoding == ENCODING and _mark(path) in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE):
            encoding = "utf-16"
        with path.open(encoding=encoding) as file:
            header = file.readline(LONGEST_FIELD)
    delimiter = delimiter or max(DELIMITERS, key=header.count)
    records = _records(path, encoding, delimiter)
    _, columns = next(records, (1, []))
    records.close()
    if not columns:
        raise UserError("is empty: there is no header line", file=path)

    def rows(_: Collection[str]) -> Iterator[Row]:
        for line, fields in islice(_records(path, encoding, delimiter), 1, None):
            if len(fields) != len(columns):
                problem = f"wrong number of fields at line {line}"
                raise UserError(problem, file=path, found=len(fields), allowed=len(columns))
            yield Row(path, f"line {line}", dict(zip(columns, fields, strict=True)))

    return TableFile(path, tuple(columns), rows)


def _mark(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(2)


def _records(path: Path, encoding: str, delimiter: str) -> Generator[tuple[int, list[str]], None, None]:
    """Every record that is not blank, and the line that it begins on."""
    csv.field_size_limit(LONGEST_FIELD)
    line = [1]
    with _decoding(path, line, encoding), path.open(encoding=encoding, newline="") as file:
        reader = csv.reader(file, delimiter=delimiter, strict=True)
        for fields in reader:
            if fields:
                yield line[0], fields
            line[0] = reader.line_num + 1


def json_table(path: Path) -> TableFile:
    """A file with a JSON object on each line; its columns are the keys of the first lines.

    Raises UserError with the line for what is no JSON object.
    """
    columns = dict.fromkeys(key for row in islice(_objects(path), ROWS_AT_ONCE) for key in row.values)
    return TableFile(path, tuple(columns), lambda _: _objects(path))


def _objects(path: Path) -> Iterator[Row]:
    for line, text in enumerate(text_lines(path), 1):
        if not text.strip():
            continue
        try:
            values = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise UserError(f"not valid JSON at line {line}", file=path, found=error) from None
        if not isinstance(values, dict):
            raise UserError(f"not an object at line {line}", file=path, found=type(values).__name__)
        yield Row(path, f"line {line}", values)


def text_lines(path: Path) -> Iterator[str]:
    """The lines of a file of UTF-8. Raises UserError with the line for what is no text."""
    line = [1]
    with _decoding(path, line, ENCODING), path.open(encoding=ENCODING) as file:
        for line[0], text in enumerate(file, 1):
            yield text


def parquet_table(path: Path) -> TableFile:
    """A Parquet file. Raises UserError for one that is not whole."""
    with _whole(path):
        columns = pq.read_schema(path).names

    def rows(wanted: Collection[str]) -> Iterator[Row]:
        number = 0
        with _whole(path), pq.ParquetFile(path, memory_map=True) as file:
            read = [name for name in columns if name in wanted]
            for batch in file.iter_batches(ROWS_AT_ONCE, columns=read):
                for values in batch.to_pylist():
                    yield Row(path, f"row {number}", values)
                    number += 1

    return TableFile(path, tuple(columns), rows)


FORMS: dict[str, Callable[[Path], TableFile]] = {
    ".csv": csv_table,
    ".tsv": partial(csv_table, delimiter="\t"),
    ".jsonl": json_table,
    ".ndjson": json_table,
    ".parquet": parquet_table,
}
"""How a file is read, by its suffix."""


@contextmanager
def _decoding(path: Path, line: list[int], encoding: str) -> Iterator[None]:
    """Errors of a text file as UserError; `line` holds the number of the line that is read."""
    try:
        yield
    except UnicodeError as error:
        raise UserError(
            f"no text in {encoding} at or after line {line[0]}", file=path, found=error,
            allowed="UTF-8; of CSV others with `mlcl init --encoding cp1252` or the source's encoding=cp1252",
        ) from None  # fmt: skip
    except LookupError:
        raise UserError("unknown encoding", file=path, key="encoding", found=encoding) from None
    except csv.Error as error:
        raise UserError(f"no CSV at or after line {line[0]}", file=path, found=error) from None
    except OSError as error:
        raise UserError("cannot be read", file=path, found=error) from None


@contextmanager
def _whole(path: Path) -> Iterator[None]:
    try:
        yield
    except (pa.ArrowException, OSError) as error:
        raise UserError("not a whole Parquet file; was it truncated?", file=path, found=error) from None
