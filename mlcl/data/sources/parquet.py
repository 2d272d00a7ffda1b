"""A Parquet file of texts, images or vectors, and labels by column."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from mlcl.data.format import DatasetInfo
from mlcl.data.source import Source
from mlcl.data.sources.common.distribution import ROWS_AT_ONCE
from mlcl.data.sources.common.table import Row, TableOptions, state, write_table
from mlcl.errors import UserError


def write(folder: Path, options: TableOptions, split_seed: int) -> DatasetInfo:
    """Write the data set. Raises UserError with file, row and column."""
    try:
        names = list(pq.read_schema(options.path).names)
    except (pa.ArrowException, OSError) as error:
        raise _damaged(options, error) from None
    wanted = {options.id, options.split, options.content}
    wanted |= {column for label in options.labels.values() for column in label.wanted().values()}
    read = [name for name in names if name in wanted]
    return write_table(folder, options, names, lambda: _rows(options, read), split_seed)


def _rows(options: TableOptions, columns: list[str]) -> Iterator[Row]:
    number = 0
    try:
        with pq.ParquetFile(options.path, memory_map=True) as file:
            for batch in file.iter_batches(ROWS_AT_ONCE, columns=columns):
                for values in batch.to_pylist():
                    yield Row(f"row {number}", values)
                    number += 1
    except (pa.ArrowException, OSError) as error:
        raise _damaged(options, error) from None


def _damaged(options: TableOptions, error: Exception) -> UserError:
    return UserError("not a whole Parquet file; was it truncated?", file=options.path, found=error)


SOURCE = Source(
    name="parquet",
    title="a Parquet file of texts, images or vectors, labels by column",
    licence="the file's own",
    version="1",
    options=TableOptions,
    write=write,
    state=state,
)
