"""A CSV file with a header line: texts, image files or vectors, and labels by column."""

from __future__ import annotations

import codecs
import csv
from collections.abc import Generator, Iterator
from pathlib import Path

from pydantic import Field, field_validator

from mlcl.data.format import DatasetInfo
from mlcl.data.source import Source
from mlcl.data.sources.common.table import LONGEST_FIELD, Row, TableOptions, state, write_table
from mlcl.errors import UserError


class Options(TableOptions):
    """How the file is read."""

    encoding: str = Field("utf-8-sig", description="utf-8-sig: UTF-8 with or without a byte order mark")
    delimiter: str = Field(",", min_length=1, max_length=1, description="between fields")

    @field_validator("encoding")
    @classmethod
    def _known(cls, encoding: str) -> str:
        try:
            codecs.lookup(encoding)
        except LookupError:
            raise ValueError("unknown encoding") from None
        return encoding


def write(folder: Path, options: Options, split_seed: int) -> DatasetInfo:
    """Write the data set. Raises UserError with file, line and column."""
    records = _records(options)
    columns = next(records, ("", []))[1]
    records.close()
    if len(set(columns)) != len(columns) or not columns:
        raise UserError("the header line must name each column once", file=options.path, found=columns)
    return write_table(folder, options, columns, lambda: _rows(options, columns), split_seed)


def _rows(options: Options, columns: list[str]) -> Iterator[Row]:
    records = _records(options)
    next(records)
    for place, fields in records:
        if len(fields) != len(columns):
            raise UserError(
                f"wrong number of fields at {place}",
                file=options.path,
                found=len(fields),
                allowed=len(columns),
            )
        yield Row(place, dict(zip(columns, fields, strict=True)))


def _records(options: Options) -> Generator[tuple[str, list[str]], None, None]:
    """Every record that is not blank, and the line that it begins on."""
    csv.field_size_limit(LONGEST_FIELD)
    line = 1
    try:
        with options.path.open(encoding=options.encoding, newline="") as file:
            reader = csv.reader(file, delimiter=options.delimiter, strict=True)
            for fields in reader:
                if fields:
                    yield f"line {line}", fields
                line = reader.line_num + 1
    except (UnicodeError, csv.Error) as error:
        problem = f"cannot be read at or after line {line}"
        raise UserError(problem, file=options.path, found=error, allowed=options.encoding) from None
    except OSError as error:
        raise UserError("cannot be read", file=options.path, found=error) from None


SOURCE = Source(
    name="csv",
    title="a CSV file of texts, image files or vectors, labels by column",
    licence="the file's own",
    version="1",
    options=Options,
    write=write,
    state=state,
)
