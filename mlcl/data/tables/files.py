"""Files of rows as pandas frames, some rows at a time: CSV, JSON, Parquet and lines of text, also as `.gz`.

The index of a frame is each row's line in its file, from 1 on; in Parquet and JSON arrays its row, from 0 on.
"""

from __future__ import annotations

import codecs
import csv
import gzip
import io
import json
from collections import Counter
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import IO, Any, cast

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from mlcl.errors import UserError, did_you_mean

ENCODING = "utf-8-sig"
"""UTF-8 with or without a byte order mark; CSV may have that of UTF-16 instead."""
LONGEST_FIELD = 1 << 27
"""Characters of one field of a CSV file; the module's own limit of 131,072 is short for clinical notes."""
ROWS_AT_ONCE = 256
ROWS_TRIED = 1_000
"""Rows from which the sign between the fields, and the keys of JSON objects, are recognised."""
FASTTEXT = "__label__"
Frame = pd.DataFrame
Records = Iterator[tuple[int, Any]]


@dataclass(frozen=True)
class Dialect:
    """How a text file is read; what is None is recognised. `header` says whether CSV has a header line."""

    encoding: str = ENCODING
    delimiter: str | None = None
    header: bool | None = None


@dataclass(frozen=True)
class Table:
    """A file of rows. `names` are the classes that a Parquet file's metadata gives for numbers, by column."""

    path: Path
    columns: tuple[str, ...]
    read: Callable[[Collection[str]], Iterator[Frame]]
    unit: str = "line"
    names: Mapping[str, Sequence[str]] = field(default_factory=dict)

    def chunks(self, columns: Iterable[str] | None = None) -> Iterator[Frame]:
        """The rows in file order, at most `ROWS_AT_ONCE` a frame, with these columns (default: all)."""
        return self.read(list(dict.fromkeys(self.columns if columns is None else columns)))

    def frame(self, columns: Iterable[str] | None = None, rows: int | None = None) -> Frame:
        """The first `rows` rows, or all of them, as one frame."""
        wanted = list(dict.fromkeys(self.columns if columns is None else columns))
        most = None if rows is None else -(-rows // ROWS_AT_ONCE)
        found = list(islice(self.chunks(wanted), most))
        return pd.concat(found) if found else Frame(columns=wanted, dtype=object)

    def require(self, column: str, key: str, allowed: object = None) -> None:
        """Raise UserError for a column that is not there once; `key` names it in the user's words."""
        if (count := self.columns.count(column)) != 1:
            hint = f"no such column{did_you_mean(column, self.columns)}"
            problem, allowed = "this column occurs twice" if count else hint, allowed or list(self.columns)
            raise UserError(problem, file=self.path, key=key, found=column, allowed=allowed)


def open_table(path: Path, dialect: Dialect | None = None) -> Table:
    """The table in a file, by its suffix. Raises UserError for a form that is not in `FORMS`."""
    if not path.is_file():
        raise UserError("no such file", file=path)
    suffix, dialect = suffix_of(path), dialect or Dialect()
    if suffix not in FORMS and _begins(path, FASTTEXT):
        return lines_table(path, dialect)
    if suffix not in FORMS:
        allowed = [*FORMS, "each also with .gz, but for .parquet"]
        raise UserError(
            "not a form that can be read", file=path, found=suffix or "no suffix", allowed=allowed
        )
    return FORMS[suffix](path, dialect)


def _begins(path: Path, start: str) -> bool:
    with _raw(path) as file:
        return file.read(len(start)) == start.encode()


def suffix_of(path: Path) -> str:
    """The suffix in small letters, without `.gz`."""
    name = path.name.lower()
    return Path(name.removesuffix(".gz")).suffix


def _frames(records: Records, wanted: Mapping[str, int | str]) -> Iterator[Frame]:
    """Frames of records; `wanted` maps a column to its position, or key, in a record."""
    while rows := list(islice(records, ROWS_AT_ONCE)):
        index = pd.Index([place for place, _ in rows])
        columns = {
            name: [row.get(key) if isinstance(row, dict) else row[key] for _, row in rows]
            for name, key in wanted.items()
        }
        yield Frame({name: pd.Series(its, index, dtype=object) for name, its in columns.items()}, index=index)


def csv_table(path: Path, dialect: Dialect) -> Table:
    """A CSV file, by default with the sign between fields that gives all first records the same length.

    Raises UserError with the line for what is no CSV, no text, a record of another length, and for a first
    line that looks like data where `dialect.header` does not say what it is.
    """
    encoding = dialect.encoding
    if encoding == ENCODING and _mark(path) in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE):
        encoding = "utf-16"
    delimiter = dialect.delimiter or _delimiter(path, encoding)
    first = list(islice(_records(path, encoding, delimiter), ROWS_TRIED))
    if not first:
        raise UserError("is empty: there is no header line", file=path)
    header = [name.strip() for name in first[0][1]]
    if dialect.header is None:
        _check_header(path, header, [fields for _, fields in first[1:]])
    skip = dialect.header is not False
    columns = header if skip else [f"column{i + 1}" for i in range(len(header))]

    def rows() -> Records:
        for line, fields in islice(_records(path, encoding, delimiter), int(skip), None):
            if len(fields) != len(columns):
                problem = f"wrong number of fields at line {line}"
                raise UserError(problem, file=path, found=len(fields), allowed=len(columns))
            yield line, fields

    return Table(path, tuple(columns), lambda wanted: _frames(rows(), {c: columns.index(c) for c in wanted}))


def _delimiter(path: Path, encoding: str) -> str:
    """The sign with which the first records have equally many fields, most of them; else the header's."""
    counts: dict[str, int] = {}
    for sign in "\t,;|" if suffix_of(path) == ".tsv" else ",;\t|":
        try:
            records = [fields for _, fields in islice(_records(path, encoding, sign), ROWS_TRIED)]
        except UserError as error:
            if "no CSV" not in error.problem:
                raise
            continue
        lengths = {len(fields) for fields in records}
        counts[sign] = lengths.pop() if len(lengths) == 1 else 0
        if sign == "\t" and suffix_of(path) == ".tsv" and counts[sign] > 1:
            return sign
    best = max(counts, key=lambda sign: counts[sign], default=",")
    if counts.get(best, 0) > 1:
        return best
    with _decoding(path, [1], encoding), _text(path, encoding) as file:
        return max(",;\t|", key=file.readline(LONGEST_FIELD).count)


def _check_header(path: Path, header: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Raise UserError where the first line has a number, a sentence, or a label that stands below it too."""
    numbered = [name for name in header if name.isdigit()] == [str(i) for i in range(len(header))]
    for column, name in enumerate(header):
        below = Counter(row[column].strip() for row in rows if len(row) == len(header))
        number = name.lstrip("+-").replace(".", "", 1).isdigit() and not set(below) <= {"0", "1"}
        if (number and not numbered) or len(name.split()) > 12 or (name and below[name] > 1):
            problem = "the first line looks like data: say whether it is a header"
            raise UserError(problem, file=path, key="header", found=name, allowed="header true, or false")


def _mark(path: Path) -> bytes:
    with _raw(path) as file:
        return file.read(2)


def _raw(path: Path) -> IO[bytes]:
    return cast(IO[bytes], gzip.open(path)) if path.suffix.lower() == ".gz" else path.open("rb")


def _text(path: Path, encoding: str, newline: str | None = None) -> IO[str]:
    return io.TextIOWrapper(_raw(path), encoding=encoding, newline=newline)


def _records(path: Path, encoding: str, delimiter: str) -> Generator[tuple[int, list[str]], None, None]:
    """Every record that is not blank, and the line that it begins on."""
    csv.field_size_limit(LONGEST_FIELD)
    line = [1]
    with _decoding(path, line, encoding), _text(path, encoding, newline="") as file:
        bare = delimiter == "\t" and _unquoted(path, encoding)
        quoting: Any = csv.QUOTE_NONE if bare else csv.QUOTE_MINIMAL
        reader = csv.reader(file, delimiter=delimiter, strict=True, quoting=quoting)
        for fields in reader:
            if fields:
                yield line[0], fields
            line[0] = reader.line_num + 1


def _unquoted(path: Path, encoding: str) -> bool:
    """Whether a file of tabs has as many in each line, and a quote that opens a field without closing it."""
    with _text(path, encoding) as file:
        lines = [line.rstrip("\n") for line in file if line.strip()]
    fields = (field for line in lines for field in line.split("\t") if field.startswith('"'))
    open_ = any(len(field) < 2 or not field.endswith('"') or field.count('"') % 2 for field in fields)
    return open_ and len({line.count("\t") for line in lines}) == 1


def json_table(path: Path, dialect: Dialect) -> Table:
    """A file with a JSON object on each line, or one array of objects; its columns are their first keys.

    Raises UserError with the line for what is no JSON object.
    """
    lines = text_lines(path, dialect.encoding)
    array = next((text.lstrip()[0] for _, text in lines if text.strip()), "") == "["
    objects = partial(_array if array else _objects, path, dialect.encoding)
    columns = dict.fromkeys(key for _, row in islice(objects(), ROWS_TRIED) for key in row)
    return Table(
        path,
        tuple(columns),
        lambda wanted: _frames(objects(), {name: name for name in wanted}),
        "row" if array else "line",
    )


def _objects(path: Path, encoding: str) -> Iterator[tuple[int, Any]]:
    for line, text in text_lines(path, encoding):
        if text.strip():
            yield line, _object(path, f"line {line}", _json(path, f"line {line}", text))


def _array(path: Path, encoding: str) -> Iterator[tuple[int, Any]]:
    found = _json(path, "line 1 and after", "".join(text for _, text in text_lines(path, encoding)))
    for row, its in enumerate(found):
        yield row, _object(path, f"row {row}", its)


def _json(path: Path, place: str, text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise UserError(f"not valid JSON at {place}", file=path, found=error) from None


def _object(path: Path, place: str, value: Any) -> Any:
    if not isinstance(value, dict):
        raise UserError(f"not an object at {place}", file=path, found=type(value).__name__)
    return value


def text_lines(path: Path, encoding: str = ENCODING) -> Iterator[tuple[int, str]]:
    """The lines of a text file with their numbers. Raises UserError with the line for what is no text."""
    line = [1]
    with _decoding(path, line, encoding), _text(path, encoding) as file:
        for line[0], text in enumerate(file, 1):
            yield line[0], text


def lines_table(path: Path, dialect: Dialect) -> Table:
    """A text a line, column `text`; where the first begins with `__label__`, with labels as fastText.

    A file with as many tabs in each line is read as CSV.
    """
    first = [text for _, text in islice(text_lines(path, dialect.encoding), ROWS_TRIED)]
    tabs = {text.count("\t") for text in first}
    if len(first) > 1 and len(tabs) == 1 and tabs != {0}:
        return csv_table(path, replace(dialect, delimiter="\t"))
    tagged = "".join(first[:1]).startswith(FASTTEXT)

    def rows() -> Records:
        for line, text in text_lines(path, dialect.encoding):
            words = text.rstrip("\r\n").split(" ") if tagged else []
            labels = [word.removeprefix(FASTTEXT) for word in words if word.startswith(FASTTEXT)]
            rest = [word for word in words if not word.startswith(FASTTEXT)]
            yield line, (" ".join(rest) if tagged else text.rstrip("\r\n"), labels)

    columns = ("text", "labels") if tagged else ("text",)
    return Table(path, columns, lambda wanted: _frames(rows(), {c: columns.index(c) for c in wanted}))


def parquet_table(path: Path, _dialect: Dialect) -> Table:
    """A Parquet file. Raises UserError for one that is not whole."""
    with _whole(path):
        schema = pq.read_schema(path)

    def read(wanted: Collection[str]) -> Iterator[Frame]:
        first = 0
        with _whole(path), pq.ParquetFile(path, memory_map=True) as file:
            for batch in file.iter_batches(ROWS_AT_ONCE, columns=list(wanted)):
                index = pd.RangeIndex(first, first + len(batch))
                columns = {name: batch.column(name).to_pylist() for name in wanted}
                yield Frame(
                    {name: pd.Series(its, index, dtype=object) for name, its in columns.items()}, index=index
                )
                first += len(batch)

    return Table(path, tuple(schema.names), read, "row", _class_names(schema.metadata or {}))


def _class_names(metadata: Mapping[bytes, bytes]) -> dict[str, Sequence[str]]:
    """The names of `ClassLabel` columns in the metadata that Hugging Face's datasets write."""
    try:
        features = json.loads(metadata[b"huggingface"])["info"]["features"]
        inner = {name: its.get("feature", its) for name, its in features.items() if isinstance(its, dict)}
        return {
            n: tuple(map(str, f["names"])) for n, f in inner.items() if isinstance(f, dict) and "names" in f
        }
    except (KeyError, ValueError, TypeError, AttributeError):
        return {}


FORMS: dict[str, Callable[[Path, Dialect], Table]] = {
    ".csv": csv_table,
    ".tsv": csv_table,
    ".jsonl": json_table,
    ".ndjson": json_table,
    ".json": json_table,
    ".parquet": parquet_table,
    ".txt": lines_table,
}
"""How a file is read, by its suffix."""


@contextmanager
def _decoding(path: Path, line: list[int], encoding: str) -> Iterator[None]:
    """Errors of a text file as UserError; `line` holds the number of the line that is read."""
    try:
        yield
    except UnicodeError as error:
        raise UserError(
            f"no text in {encoding} at or after line {line[0]}", file=path, key="encoding", found=error,
            allowed="the encoding that it has, such as encoding cp1252",
        ) from None  # fmt: skip
    except LookupError:
        raise UserError("unknown encoding", file=path, key="encoding", found=encoding) from None
    except csv.Error as error:
        raise UserError(f"no CSV at or after line {line[0]}", file=path, found=error) from None
    except (OSError, EOFError) as error:
        raise UserError("cannot be read", file=path, found=error) from None


@contextmanager
def _whole(path: Path) -> Iterator[None]:
    try:
        yield
    except (pa.ArrowException, OSError) as error:
        raise UserError("not a whole Parquet file; was it truncated?", file=path, found=error) from None
