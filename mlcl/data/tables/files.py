"""Reads files of rows as pandas frames, some rows at a time; text files and CSV are here.

The index of a frame has each row's line in its file, from 1 on; in Parquet and JSON arrays its row, from 0.
The delimiter, the quoting and the header of a CSV file are detected, or an error says what is unclear.
"""

from __future__ import annotations

import codecs
import csv
import gzip
import io
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import IO, Any, cast

import pandas as pd

from mlcl.errors import UserError, did_you_mean

ENCODING = "utf-8-sig"
"""UTF-8 with or without a byte order mark; a file with the mark of UTF-16 is read as UTF-16."""
ROWS_AT_ONCE = 256
ROWS_TRIED = 1_000
"""The number of first rows from which the delimiter and the header are recognised."""
SWALLOWED = 3
"""The least number of whole lines in one quoted field that are taken for rows, if all look like rows."""
LONG = 100
"""The number of characters from which on a field does not count as a label or id."""
LONGEST_FIELD = 1 << 27
"""The most characters of a field; 131,072, the default of module csv, is too few for clinical notes."""
Frame = pd.DataFrame
Records = Iterator[tuple[int, Any]]
"""Yields each record: its line (or row) number, and its fields or a mapping of keys to values."""


@dataclass(frozen=True)
class Dialect:
    """Encoding, delimiter and presence of a header line of a text file; None means that it is detected."""

    encoding: str = ENCODING
    delimiter: str | None = None
    header: bool | None = None


@dataclass(frozen=True)
class TableFile:
    """A table in a file, and how its rows are read.

    `read` yields frames of the columns that it is given. `unit` is what the row numbers count, line or row.
    `names` maps a column to its class names, where the metadata of a Parquet file have them.
    """

    path: Path
    columns: tuple[str, ...]
    read: Callable[[Collection[str]], Iterator[Frame]]
    unit: str = "line"
    names: Mapping[str, Sequence[str]] = field(default_factory=dict)

    def chunks(self, columns: Iterable[str]) -> Iterator[Frame]:
        """Yields the given columns in file order, at most `ROWS_AT_ONCE` rows a frame."""
        return self.read(list(dict.fromkeys(columns)))

    def frame(self, columns: Iterable[str], rows: int | None = None) -> Frame:
        """Returns the first `rows` rows, or a few more, as one frame; by default all rows."""
        names = list(dict.fromkeys(columns))
        chunks = list(islice(self.chunks(names), None if rows is None else -(-rows // ROWS_AT_ONCE)))
        return pd.concat(chunks) if chunks else Frame(columns=names, dtype=object)

    def require(self, column: str, key: str, allowed: object = None) -> None:
        """Raises UserError unless the column exists exactly once; `key` is the option that names it."""
        if (count := self.columns.count(column)) != 1:
            hint = f"no such column{did_you_mean(column, self.columns)}"
            problem, allowed = "this column occurs twice" if count else hint, allowed or list(self.columns)
            raise UserError(problem, file=self.path, key=key, found=column, allowed=allowed)


def suffix_of(path: Path) -> str:
    """Returns the suffix of a file in lower case; a final `.gz` is ignored."""
    return Path(path.name.lower().removesuffix(".gz")).suffix


def frames(records: Records, positions: Mapping[str, int | str]) -> Iterator[Frame]:
    """Groups records into frames; `positions` maps a column to its position, or key, in a record."""
    while rows := list(islice(records, ROWS_AT_ONCE)):
        columns = {
            name: [row.get(key) if isinstance(row, dict) else row[key] for _, row in rows]
            for name, key in positions.items()
        }
        yield object_frame(columns, pd.Index([line for line, _ in rows]))


def object_frame(columns: Mapping[str, list[Any]], index: Any) -> Frame:
    """Builds a frame of dtype object, so that pandas converts no value."""
    return Frame({n: pd.Series(values, index, dtype=object) for n, values in columns.items()}, index=index)


def open_bytes(path: Path) -> IO[bytes]:
    """Opens a file as bytes; a file with the suffix `.gz` is decompressed."""
    return cast(IO[bytes], gzip.open(path)) if path.suffix.lower() == ".gz" else path.open("rb")


def open_text(path: Path, encoding: str, newline: str | None = None) -> IO[str]:
    """Opens a file as text; `.gz` is decompressed, and a byte order mark of UTF-8 skipped."""
    encoding = ENCODING if codecs.lookup(encoding).name == "utf-8" else encoding
    return io.TextIOWrapper(open_bytes(path), encoding=encoding, newline=newline)


def text_lines(path: Path, encoding: str = ENCODING) -> Iterator[tuple[int, str]]:
    """Yields the number and the text of each line. Raises UserError with the line that is not text."""
    line, encoding = [1], _resolve_encoding(path, encoding)
    with _decoding(path, line, encoding), open_text(path, encoding) as file:
        for line[0], text in enumerate(file, 1):
            _check_no_nul(path, line[0], [text])
            yield line[0], text


def _check_no_nul(path: Path, line: int, texts: Sequence[str]) -> None:
    if any("\0" in text for text in texts):
        allowed = "text; for a file in UTF-16 without a mark encoding utf-16-le or utf-16-be"
        raise UserError(f"a NUL in line {line}", file=path, key="encoding", allowed=allowed)


class _CsvError(UserError):
    """Raised for text that is not valid CSV with the tried delimiter."""


@contextmanager
def _decoding(path: Path, line: list[int], encoding: str) -> Iterator[None]:
    """Turns errors on reading a text file into UserError; `line` holds the number of the current line."""
    try:
        yield
    except UnicodeError as error:
        raise UserError(
            f"not text in {encoding} at or after line {line[0]}", file=path, key="encoding", found=error,
            allowed="the encoding that it has, such as encoding cp1252",
        ) from None  # fmt: skip
    except LookupError:
        raise UserError("unknown encoding", file=path, key="encoding", found=encoding) from None
    except csv.Error as error:
        raise _CsvError(f"not valid CSV at or after line {line[0]}", file=path, found=error) from None
    except (OSError, EOFError) as error:
        raise UserError("cannot be read", file=path, found=error) from None


def _resolve_encoding(path: Path, encoding: str) -> str:
    """Returns `utf-16` if the file has its byte order mark and `encoding` is the default, else `encoding`."""
    with _decoding(path, [1], encoding), open_bytes(path) as file:
        is_utf16 = encoding == ENCODING and file.read(2) in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
    return "utf-16" if is_utf16 else encoding


def csv_table(path: Path, dialect: Dialect) -> TableFile:
    """Opens a CSV file; the default delimiter is the one that gives the first records equally many fields.

    Raises UserError, with the line, for text that is not CSV and for a record with another number of fields;
    also, unless `dialect.header` is given, for a first line that looks like data.
    """
    encoding = _resolve_encoding(path, dialect.encoding)
    delimiter = dialect.delimiter or _detect_delimiter(path, encoding)
    if len(delimiter) != 1 or delimiter in '"\r\n':
        problem = "no sign between fields"
        raise UserError(problem, file=path, key="delimiter", found=delimiter, allowed="one sign")
    first_records = [fields for _, fields in islice(_records(path, encoding, delimiter), ROWS_TRIED)]
    if not first_records:
        raise UserError("is empty: there is no header line", file=path)
    header = [name.strip() for name in first_records[0]]
    if dialect.header is None:
        _check_header(path, header, first_records[1:])
    has_header = dialect.header is not False
    columns = header if has_header else [f"column{i + 1}" for i in range(len(header))]

    def rows() -> Records:
        for line, fields in islice(_records(path, encoding, delimiter), int(has_header), None):
            if len(fields) != len(columns):
                problem = f"wrong number of fields at line {line}"
                raise UserError(problem, file=path, found=len(fields), allowed=len(columns))
            if has_header and len(header) > 1 and fields == first_records[0]:
                raise UserError(f"the header is repeated at line {line}", file=path, found=", ".join(header))
            yield line, fields

    return TableFile(path, tuple(columns), lambda names: frames(rows(), {c: columns.index(c) for c in names}))


def _detect_delimiter(path: Path, encoding: str) -> str:
    """Returns the delimiter that gives the first records the same, largest number of fields.

    If no delimiter gives them an equal number above 1, it is the one most frequent in the first line.
    """
    is_tsv = suffix_of(path) == ".tsv"
    counts: dict[str, int] = {}
    rows: dict[str, list[list[str]]] = {}
    for sign in "\t,;|" if is_tsv else ",;\t|":
        try:
            rows[sign] = [fields for _, fields in islice(_records(path, encoding, sign), ROWS_TRIED)]
        except _CsvError:
            continue
        lengths = set(map(len, rows[sign]))
        counts[sign] = lengths.pop() if len(lengths) == 1 else 0
        if sign == "\t" and is_tsv and counts[sign] > 1:
            return sign
    best = max(counts, key=lambda sign: counts[sign], default=",")
    if counts.get(best, 0) > 1:
        if len(signs := [sign for sign in counts if counts[sign] > 1 and _is_rival(rows, sign, best)]) > 1:
            problem = "two signs divide each of the first lines alike"
            raise UserError(problem, file=path, key="delimiter", found=" ".join(signs), allowed="one of them")
        return best
    with _decoding(path, [1], encoding), open_text(path, encoding) as file:
        return max(",;\t|", key=file.readline(LONGEST_FIELD).count)


def _is_rival(rows: Mapping[str, Sequence[Sequence[str]]], one: str, other: str) -> bool:
    """Whether two signs that fit may both be the delimiter.

    They give equally many fields, or each occurs in at most one field of a record that the other one divides.
    """
    fields = [[sum(b in field for field in row) for row in rows[a]] for a, b in ((one, other), (other, one))]
    equal = len(rows[one][0]) == len(rows[other][0])
    return one == other or equal or all(max(counts) <= 1 for counts in fields)


def _check_header(path: Path, header: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Raises UserError for a first line that looks like data.

    Such a line has a number, a sentence, a comment, a text that occurs again in the same column, or labels
    between `;` or `|` that occur in the same column.
    """
    numbered = [name for name in header if name.isdigit()] == [str(i) for i in range(len(header))]
    for column, name in enumerate(header):
        values = Counter(row[column].strip() for row in rows if len(row) == len(header))
        is_number = name.lstrip("+-").replace(".", "", 1).isdigit() and not set(values) <= {"0", "1"}
        words = sum(len(text.split()) * count for text, count in values.items()) / max(1, len(rows))
        is_sentence = len(name.split()) > 4 and words > 4
        parts = {part.strip() for cell in values for part in re.split("[;|]", cell)}
        are_labels = len(items := re.split("[;|]", name)) > 1 and {part.strip() for part in items} <= parts
        is_comment = column == 0 and name.startswith("# ") and len(name.split()) > 2
        if (is_number and not numbered) or is_sentence or is_comment or are_labels or (name and values[name]):
            problem = "the first line looks like data: say whether it is a header"
            raise UserError(problem, file=path, key="header", found=name, allowed="header true, or false")


def _records(path: Path, encoding: str, delimiter: str) -> Generator[tuple[int, list[str]], None, None]:
    """Yields every record that is not blank, with the line on which it begins, without Excel's `sep=;`."""
    csv.field_size_limit(LONGEST_FIELD)
    line, quoted_lines = [1], _QuotedLines(path, delimiter)
    with _decoding(path, line, encoding), open_text(path, encoding, newline="") as file:
        is_unquoted = delimiter == "\t" and _is_unquoted(path, encoding)
        quoting: Any = csv.QUOTE_NONE if is_unquoted else csv.QUOTE_MINIMAL
        is_spaced = not is_unquoted and _is_spaced(path, encoding, delimiter)
        reader = csv.reader(
            file, delimiter=delimiter, strict=True, quoting=quoting, skipinitialspace=is_spaced
        )
        for fields in reader:
            if fields and not (line[0] == 1 and fields == ["sep=", ""]):
                _check_no_nul(path, line[0], fields)
                quoted_lines.add(line[0], fields)
                yield line[0], fields
            line[0] = reader.line_num + 1
        quoted_lines.check()


class _QuotedLines:
    """Finds quotes that are closed some records too late: lines within them have values of other records.

    The lines of a longer text, such as a poem, do not have such values.
    """

    def __init__(self, path: Path, delimiter: str) -> None:
        self._path, self._delimiter = path, delimiter
        self._n_records = 0
        self._column_values: dict[int, set[str]] = defaultdict(set)
        self._suspects: list[tuple[int, int, list[str]]] = []

    def add(self, line: int, fields: Sequence[str]) -> None:
        """Keeps `ROWS_TRIED` short values of each column, and the fields whose lines look like records."""
        self._n_records += 1
        for column, text in enumerate(fields):
            if len(text) < LONG and len(values := self._column_values[column]) < ROWS_TRIED:
                values.add(text.strip())
            lines = text.split("\n")[1:-1] if "\n" in text and len(fields) > 1 else []
            if len(lines) >= SWALLOWED and {row.count(self._delimiter) for row in lines} == {len(fields) - 1}:
                self._suspects.append((line, column, lines))

    def check(self) -> None:
        """Raises UserError for a kept field whose lines have values of other records."""
        for line, column, lines in self._suspects:
            columns = zip(*(row.split(self._delimiter) for row in lines), strict=True)
            if any(
                self._has_values(other, values) for other, values in enumerate(columns) if other != column
            ):
                problem = f"a quote at or after line {line} is closed {len(lines) + 1} lines later"
                allowed = '" within quotes as ""'
                raise UserError(problem, file=self._path, found=lines[0].strip(), allowed=allowed)

    def _has_values(self, column: int, fields: Sequence[str]) -> bool:
        """Whether a column has these values; numbers in them may differ if no value occurs twice in it."""
        known_values, values = self._column_values[column], {text.strip() for text in fields} - {""}
        if len(known_values) >= min(self._n_records, ROWS_TRIED):
            known_values, values = (
                {re.sub(r"\d+", "0", text) for text in texts} for texts in (known_values, values)
            )
        return bool(values) and values <= known_values


def _is_spaced(path: Path, encoding: str, delimiter: str) -> bool:
    """Whether each of the first lines, except the header, has a space between a delimiter and a quote."""
    with open_text(path, encoding) as file:
        lines = [line for line in islice(file, ROWS_TRIED) if line.strip()]
    if not lines[1:] or not all(f'{delimiter} "' in line for line in lines[1:]):
        return False
    try:
        records = csv.reader(lines, delimiter=delimiter, strict=True, skipinitialspace=True)
        return len({len(fields) for fields in records}) == 1
    except csv.Error:
        return False


def _is_unquoted(path: Path, encoding: str) -> bool:
    """Whether quotes in a file with tabs are plain characters, which do not enclose fields.

    This is so if all lines have the same number of tabs, and some field begins with a quote that it does not
    close.
    """
    with open_text(path, encoding) as file:
        lines = [line.rstrip("\n") for line in file if line.strip()]
    fields = (field for line in lines for field in line.split("\t") if field.startswith('"'))
    is_open = any(len(field) < 2 or not field.endswith('"') or field.count('"') % 2 for field in fields)
    return is_open and len({line.count("\t") for line in lines}) == 1
