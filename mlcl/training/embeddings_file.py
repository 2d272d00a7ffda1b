"""The embeddings of a run as Parquet: one file, or of several ranks a folder with one part from each.

Shapes: N rows, D embedding, P probabilities of a row.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import torch
from torch import Tensor

from mlcl.data import Split
from mlcl.files import new_file, remove_partial
from mlcl.training.context import Context
from mlcl.training.evaluation_result import Evaluation
from mlcl.training.job_data import JobData

EMBEDDINGS = "embeddings.parquet"
PARTS = f".{EMBEDDINGS}.ranks.partial"
"""The folder that takes the name of `EMBEDDINGS` when every rank has written its part."""

ROW_GROUP = 65_536
"""Rows that the writer encodes, and so holds a second time, at once."""


def write_embeddings(folder: Path, job_data: JobData, result: Evaluation) -> None:
    """Writes `EMBEDDINGS` in the folder, whole or not at all; every rank must call this.

    Columns: `id`, `split`, `embedding`, and `probabilities`, null for training rows. The parts of several
    ranks, read in the order of their names, hold the same rows in the same order: first each its training
    rows, and the last rank's after them those of validation and test.
    """
    train, context = result.train, result.train.context
    tables = [_table(job_data.train, train.numbers, train.values, None)]
    if context.rank == context.world_size - 1:
        for name, embedding_ND in result.embeddings.items():
            split = job_data.dataset.split(name)
            probabilities = result.probabilities.get(name)
            tables.append(_table(split, range(len(split)), embedding_ND, probabilities))
    if context.world_size == 1:
        with new_file(folder / EMBEDDINGS) as path:
            _write(path, tables)
    else:
        write_part(folder, tables, context)


def read_embeddings(path: Path, **options: Any) -> pa.Table:
    """What `write_embeddings` wrote, as one table; `options` are those of `pyarrow.parquet.read_table`."""
    return pq.read_table(path, partitioning=None, **options)


def write_part(folder: Path, tables: list[pa.Table], context: Context) -> None:
    """Writes this rank's part into a folder that rank 0 makes and, when all ranks are done, renames.

    Raises OSError on every rank where one of them cannot write.
    """
    parts, final = folder / PARTS, folder / EMBEDDINGS
    if context.is_main:
        remove_partial(folder, EMBEDDINGS)
        parts.mkdir()
    context.wait()
    error: OSError | None = None
    try:
        _write(parts / f"part-{context.rank:05d}.parquet", tables)
    except OSError as raised:  # the other ranks must not wait for this one for ever
        error = raised
    if context.any(error is not None):
        raise error or OSError(f"another rank could not write its embeddings into {folder}")
    if context.is_main:
        if final.is_dir():
            shutil.rmtree(final)
        final.unlink(missing_ok=True)
        parts.rename(final)
    context.wait()


def _write(path: Path, tables: list[pa.Table]) -> None:
    pq.write_table(pa.concat_tables(tables), path, compression="zstd", row_group_size=ROW_GROUP)


def _table(split: Split, rows: range, embedding_ND: Tensor, probabilities: Tensor | None) -> pa.Table:
    """The rows of a split with the given numbers."""
    return pa.table(
        {
            "id": split.id_column(rows),
            "split": pa.repeat(pa.scalar(split.name, pa.string()), len(rows)),
            "embedding": fixed_lists(embedding_ND),
            "probabilities": _lists(probabilities, len(rows)),
        }
    )


def fixed_lists(values_ND: Tensor) -> pa.Array:
    """The rows of a matrix as lists; nulls where it has no columns, as of a baseline."""
    if not values_ND.shape[1]:
        return pa.nulls(len(values_ND), pa.list_(pa.float32()))
    return pa.FixedSizeListArray.from_arrays(pa.array(values_ND.numpy().ravel()), values_ND.shape[1])


def matrix(column: pa.ChunkedArray) -> Tensor:
    """Lists of one length as the rows of a matrix."""
    return torch.from_numpy(pc.list_flatten(column).to_numpy().reshape(len(column), -1).copy())


def _lists(values: Tensor | None, rows: int) -> pa.ListArray:
    """Probabilities (flattened over aspects) as lists; null where the split has none."""
    if values is None:
        return pa.nulls(rows, pa.list_(pa.float32()))
    flat_NP = values.reshape(rows, -1).float()
    offsets = np.arange(rows + 1, dtype=np.int32) * flat_NP.shape[1]
    return pa.ListArray.from_arrays(pa.array(offsets), pa.array(flat_NP.numpy().ravel()))
