"""The datastore of an exported model as a Parquet file: id, embedding and label of each training row.

Shapes: N rows, A aspects.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import torch

from mlcl.data.columns import label_rows, single_classes
from mlcl.errors import UserError
from mlcl.evaluation import Task
from mlcl.labels import LabelRows
from mlcl.training.classifier import Labels
from mlcl.training.embeddings_file import fixed_lists, matrix, read_embeddings
from mlcl.training.job_data import JobData
from mlcl.training.neighbours import Datastore, RankRows


def trained_datastore(file: Path, job_data: JobData) -> Datastore:
    """The rows that a run was trained on, from its stored embeddings.

    Raises UserError for a file that cannot be read, and for embeddings of other rows.
    """
    try:
        table = read_embeddings(file, columns=["id", "embedding"], filters=[("split", "=", "train")])
        embedding_ND = matrix(table["embedding"])
    except (OSError, ValueError, pa.ArrowException) as error:
        raise UserError("the run's embeddings cannot be read", file=file, found=error) from None
    if table["id"].to_pylist() != job_data.train.ids:
        raise UserError("embeddings of other training rows", file=file)
    return job_data.datastore(RankRows(embedding_ND))


def write_datastore(file: Path, store: Datastore, ids: list[str]) -> None:
    """Labels are class indices: one, a list of them, or one an aspect with -1 for missing."""
    table = {
        "id": pa.array(ids, pa.string()),
        "embedding": fixed_lists(store.rows.values),
        "label": _labels(store),
    }
    pq.write_table(pa.table(table), file, compression="zstd")


def read_datastore(file: Path, task: Task, n_classes: int, dim: int) -> Datastore:
    """Reads what `write_datastore` wrote, with embeddings (N, dim).

    Raises UserError for any other file, and for labels or embeddings that do not fit the model.
    """
    try:
        table = pq.read_table(file, columns=["embedding", "label"])
        embedding_ND = matrix(table["embedding"])
        labels = _read_labels(table["label"], task, n_classes)
    except (OSError, ValueError, TypeError, AttributeError, pa.ArrowException) as error:
        raise UserError("not the datastore of a model", file=file, found=error) from None
    if embedding_ND.shape[1] != dim or not bool(torch.isfinite(embedding_ND).all()):
        raise UserError("embeddings of another model, or not finite", file=file)
    return Datastore(RankRows(embedding_ND), labels, task, n_classes)


def _labels(store: Datastore) -> Any:
    if isinstance(store.labels, LabelRows):
        return pa.array(store.labels.lists(), pa.list_(pa.int32()))
    values = store.labels.to(torch.int32)
    return pa.array(values.numpy()) if values.ndim == 1 else fixed_lists(values)


def _read_labels(column: Any, task: Task, n_classes: int) -> Labels:
    lowest = 0 if task == "multi_label" else -1  # missing
    entries = column if task == "single" else pc.list_flatten(column)
    within = pc.and_(pc.greater_equal(entries, lowest), pc.less(entries, n_classes))
    if not pc.all(within, min_count=0).as_py():
        raise ValueError(f"labels outside {lowest} to {n_classes - 1}")
    if task == "multi_label":
        return label_rows(column, n_classes)
    return matrix(column).long() if task == "aspects" else single_classes(column)
