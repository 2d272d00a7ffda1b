"""Parquet files: texts, images or vectors, and labels by column."""

from __future__ import annotations

from pathlib import Path

from mlcl.data.format import DatasetInfo
from mlcl.data.source import Source
from mlcl.data.sources.common.table import TableOptions, state, write_table
from mlcl.data.table_file import parquet_table


def write(folder: Path, options: TableOptions, split_seed: int) -> DatasetInfo:
    """Write the data set. Raises UserError with file, row and column."""
    return write_table(folder, options, [parquet_table(path) for path in options.path], split_seed)


SOURCE = Source(
    name="parquet",
    title="Parquet files of texts, images or vectors, labels by column",
    licence="the file's own",
    version="2",
    options=TableOptions,
    write=write,
    state=state,
)
