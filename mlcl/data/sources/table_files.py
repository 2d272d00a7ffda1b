"""Files of a user's rows: CSV, JSON lines and Parquet of texts, images or vectors, with labels by column."""

from __future__ import annotations

import codecs
from collections.abc import Callable
from functools import partial
from pathlib import Path

from pydantic import Field, field_validator

from mlcl.data.format import DatasetInfo
from mlcl.data.source import Source
from mlcl.data.sources.common.table import write_table
from mlcl.data.sources.common.table_options import TableOptions, state
from mlcl.data.table_file import ENCODING, TableFile, csv_table, json_table, parquet_table


class CsvOptions(TableOptions):
    """How a CSV file is read."""

    encoding: str = Field(ENCODING, description="utf-8-sig: UTF-8 with or without a byte order mark")
    delimiter: str | None = Field(
        None, min_length=1, max_length=1, description="between fields; default: as the header line has it"
    )

    @field_validator("encoding")
    @classmethod
    def _known(cls, encoding: str) -> str:
        try:
            codecs.lookup(encoding)
        except LookupError:
            raise ValueError("unknown encoding") from None
        return encoding


def write_csv(folder: Path, options: CsvOptions, split_seed: int) -> DatasetInfo:
    """Write the data set. Raises UserError with file, line and column."""
    tables = [csv_table(path, options.encoding, options.delimiter) for path in options.path]
    return write_table(folder, options, tables, split_seed)


def write(
    open_table: Callable[[Path], TableFile], folder: Path, options: TableOptions, split_seed: int
) -> DatasetInfo:
    """Write the data set of files that `open_table` opens. Raises UserError with file, place and column."""
    return write_table(folder, options, [open_table(path) for path in options.path], split_seed)


CSV = Source(
    name="csv",
    title="CSV files of texts, image files or vectors, labels by column",
    licence="the file's own",
    version="2",
    options=CsvOptions,
    write=write_csv,
    state=state,
)
JSONL = Source(
    name="jsonl",
    title="JSON objects, one a line, of texts, images or vectors, labels by column",
    licence="the file's own",
    version="1",
    options=TableOptions,
    write=partial(write, json_table),
    state=state,
)
PARQUET = Source(
    name="parquet",
    title="Parquet files of texts, images or vectors, labels by column",
    licence="the file's own",
    version="2",
    options=TableOptions,
    write=partial(write, parquet_table),
    state=state,
)
