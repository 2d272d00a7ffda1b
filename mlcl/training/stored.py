"""Neighbours' figures of a finished run from the embeddings that it left: any (k, lambda, tau), no training.

Shapes: N rows of a split, D embedding, P probabilities of a row.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import torch
from numpy.typing import NDArray
from torch import Tensor

from mlcl.errors import UserError
from mlcl.evaluation import Setting, evaluate
from mlcl.training.files import EMBEDDINGS
from mlcl.training.hierarchy import coarse_accuracy, parents
from mlcl.training.material import Material
from mlcl.training.neighbours import Datastore

COLUMNS = ("id", "split", "embedding", "probabilities")
NAMES = {"validation": "val", "test": "test"}


def stored_metrics(folder: Path, material: Material, setting: Setting) -> dict[str, float]:
    """`knn/val/...` and `knn/test/...` of a run under `setting`: what the run itself would have logged.

    `lambda_` 0 is the model alone. Raises UserError where the run left no embeddings, or those of other rows.
    """
    table = _read(folder / EMBEDDINGS)
    labels = material.job.objective.classifier.labels
    space, coarser = material.dataset.info.space(labels), parents(material.dataset, labels)
    train_ND, _ = _split(table, "train", material.train.ids, folder)
    store = Datastore(train_ND, material.targets(material.train), material.task, space.n_classes)
    metrics: dict[str, float] = {}
    for split_name, name in NAMES.items():
        split = material.dataset.split(split_name)
        queries_ND, flat_NP = _split(table, split_name, split.ids, folder)
        targets = material.targets(split)
        shape = (len(split), len(space.aspects), -1) if material.task == "aspects" else (len(split), -1)
        model = flat_NP.reshape(shape)
        predict = store.predictor(lambda _, model=model: model, setting)  # type: ignore[misc]
        probabilities = predict(queries_ND)
        values = evaluate(
            material.task, probabilities, targets, material.job.evaluation.threshold, space.aspects
        )
        values |= coarse_accuracy(probabilities, split, coarser)
        overlap = store.overlap(queries_ND, targets, setting.k)
        if overlap == overlap:
            values["neighbour_overlap"] = overlap
        metrics |= {f"knn/{name}/{metric}": value for metric, value in values.items()}
    return metrics


def _read(file: Path) -> pa.Table:
    try:
        table = pq.read_table(file)
        table.validate(full=True)
    except (OSError, pa.ArrowException) as error:
        raise UserError("the run's embeddings cannot be read", file=file, found=error) from None
    missing = [name for name in COLUMNS if name not in table.column_names]
    lists = all(_is_list(table[name].type) for name in COLUMNS[2:] if name not in missing)
    if missing or not lists:
        raise UserError("not the embeddings of a run", file=file, found=table.column_names, allowed=COLUMNS)
    return table


def _is_list(column: pa.DataType) -> bool:
    kinds = (pa.types.is_list, pa.types.is_large_list, pa.types.is_fixed_size_list)
    return any(kind(column) for kind in kinds) and pa.types.is_floating(column.value_type)


def _split(table: pa.Table, name: str, ids: list[str], folder: Path) -> tuple[Tensor, Tensor]:
    """Embeddings (N, D) and probabilities (N, P), which training rows lack, of one split."""
    rows = table.filter(pc.equal(table["split"], name))
    if rows["id"].to_pylist() != ids:
        raise UserError(f"embeddings of other {name} rows", file=folder / EMBEDDINGS)
    embedding, flat = (_matrix(rows[column], folder) for column in COLUMNS[2:])
    return torch.from_numpy(embedding), torch.from_numpy(flat.astype(np.float32))


def _matrix(column: pa.ChunkedArray, folder: Path) -> NDArray[np.floating]:
    """Lists of one length as rows of their own."""
    if len(pc.unique(pc.list_value_length(column))) != 1:
        raise UserError("not the embeddings of a run: rows of several lengths", file=folder / EMBEDDINGS)
    values: NDArray[np.floating] = pc.list_flatten(column).to_numpy()
    return values.reshape(len(column), -1).copy()
