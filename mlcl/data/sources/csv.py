"""A CSV file with a header line: texts, image files or vectors, and labels by column."""

from __future__ import annotations

import codecs
from pathlib import Path

from pydantic import Field, field_validator

from mlcl.data.format import DatasetInfo
from mlcl.data.source import Source
from mlcl.data.sources.common.table import TableOptions, state, write_table
from mlcl.data.table_file import ENCODING, csv_table


class Options(TableOptions):
    """How the file is read."""

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


def write(folder: Path, options: Options, split_seed: int) -> DatasetInfo:
    """Write the data set. Raises UserError with file, line and column."""
    tables = [csv_table(path, options.encoding, options.delimiter) for path in options.path]
    return write_table(folder, options, tables, split_seed)


SOURCE = Source(
    name="csv",
    title="CSV files of texts, image files or vectors, labels by column",
    licence="the file's own",
    version="2",
    options=Options,
    write=write,
    state=state,
)
