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
from torch import Tensor

from mlcl.errors import UserError
from mlcl.evaluation import Setting, evaluate
from mlcl.training.files import EMBEDDINGS
from mlcl.training.hierarchy import coarse_accuracy, parents
from mlcl.training.material import Material
from mlcl.training.neighbours import Datastore

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
        return pq.read_table(file)
    except (OSError, pa.ArrowException) as error:
        raise UserError("the run's embeddings cannot be read", file=file, found=error) from None


def _split(table: pa.Table, name: str, ids: list[str], folder: Path) -> tuple[Tensor, Tensor]:
    """Embeddings (N, D) and probabilities (N, P), which training rows lack, of one split."""
    rows = table.filter(pc.equal(table["split"], name))
    if rows["id"].to_pylist() != ids:
        raise UserError(f"embeddings of other {name} rows", file=folder / EMBEDDINGS)
    embedding = pc.list_flatten(rows["embedding"]).to_numpy().reshape(len(rows), -1)
    flat = pc.list_flatten(rows["probabilities"]).to_numpy().astype(np.float32)
    return torch.from_numpy(embedding.copy()), torch.from_numpy(flat.copy()).reshape(len(rows), -1)
