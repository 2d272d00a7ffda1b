"""Files with a JSON object a line: texts, images or vectors, and labels by column."""

from __future__ import annotations

from pathlib import Path

from mlcl.data.format import DatasetInfo
from mlcl.data.source import Source
from mlcl.data.sources.common.table import TableOptions, state, write_table
from mlcl.data.table_file import json_table


def write(folder: Path, options: TableOptions, split_seed: int) -> DatasetInfo:
    """Write the data set. Raises UserError with file, line and column."""
    return write_table(folder, options, [json_table(path) for path in options.path], split_seed)


SOURCE = Source(
    name="jsonl",
    title="JSON objects, one a line, of texts, images or vectors, labels by column",
    licence="the file's own",
    version="1",
    options=TableOptions,
    write=write,
    state=state,
)
