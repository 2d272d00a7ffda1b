"""CSV files: the sign between fields, the quotes and the header are recognised, or refused with the line."""

from __future__ import annotations

import codecs
import csv
from collections import Counter
from collections.abc import Generator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from mlcl.data.tables.files import (
    ENCODING,
    ROWS_TRIED,
    Dialect,
    Records,
    Table,
    decoding,
    frames,
    open_bytes,
    open_text,
    suffix_of,
)
from mlcl.errors import UserError

LONGEST_FIELD = 1 << 27
"""Characters of one field; the module's own limit of 131,072 is short for clinical notes."""


def csv_table(path: Path, dialect: Dialect) -> Table:
    """A CSV file, by default with the sign between fields that gives all first records the same length.

    Raises UserError with the line for what is no CSV, no text, a record of another length, and for a first
    line that looks like data where `dialect.header` does not say what it is.
    """
    encoding = dialect.encoding
    if encoding == ENCODING and _mark(path) in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE):
        encoding = "utf-16"
    delimiter = dialect.delimiter or _delimiter(path, encoding)
    if len(delimiter) != 1 or delimiter in '"\r\n':
        raise UserError(
            "no sign between fields", file=path, key="delimiter", found=delimiter, allowed="one sign"
        )
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

    return Table(path, tuple(columns), lambda wanted: frames(rows(), {c: columns.index(c) for c in wanted}))


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
    with decoding(path, [1], encoding), open_text(path, encoding) as file:
        return max(",;\t|", key=file.readline(LONGEST_FIELD).count)


def _check_header(path: Path, header: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Raise UserError where the first line has a number, a sentence, or a label that stands below it too."""
    numbered = [name for name in header if name.isdigit()] == [str(i) for i in range(len(header))]
    for column, name in enumerate(header):
        below = Counter(row[column].strip() for row in rows if len(row) == len(header))
        number = name.lstrip("+-").replace(".", "", 1).isdigit() and not set(below) <= {"0", "1"}
        words = sum(len(text.split()) * count for text, count in below.items()) / max(1, len(rows))
        sentence = len(name.split()) > 4 and words > 4
        if (number and not numbered) or sentence or (name and below[name]):
            problem = "the first line looks like data: say whether it is a header"
            raise UserError(problem, file=path, key="header", found=name, allowed="header true, or false")


def _mark(path: Path) -> bytes:
    with open_bytes(path) as file:
        return file.read(2)


def _records(path: Path, encoding: str, delimiter: str) -> Generator[tuple[int, list[str]], None, None]:
    """Every record that is not blank, and the line that it begins on."""
    csv.field_size_limit(LONGEST_FIELD)
    line = [1]
    with decoding(path, line, encoding), open_text(path, encoding, newline="") as file:
        bare = delimiter == "\t" and _unquoted(path, encoding)
        quoting: Any = csv.QUOTE_NONE if bare else csv.QUOTE_MINIMAL
        reader = csv.reader(file, delimiter=delimiter, strict=True, quoting=quoting)
        for fields in reader:
            if fields:
                yield line[0], fields
            line[0] = reader.line_num + 1


def _unquoted(path: Path, encoding: str) -> bool:
    """Whether a file of tabs has as many in each line, and a quote that opens a field without closing it."""
    with open_text(path, encoding) as file:
        lines = [line.rstrip("\n") for line in file if line.strip()]
    fields = (field for line in lines for field in line.split("\t") if field.startswith('"'))
    open_ = any(len(field) < 2 or not field.endswith('"') or field.count('"') % 2 for field in fields)
    return open_ and len({line.count("\t") for line in lines}) == 1
