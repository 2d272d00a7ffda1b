"""Baselines by nearest neighbours, with cosine similarity and the vote weights of kNN-MLTC Eq. 1.

Shapes: N training rows, M queries, F features, K neighbours.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from mlcl.evaluation import Neighbours, Task, knn_probabilities, retrieve
from mlcl.labels import LabelRows
from mlcl.training.baselines.baseline import Baseline, Fitted, Part, Problem

KS = (1, 3, 5, 10, 20, 50)
TEMPERATURES = (0.03, 0.1, 0.3, 1.0)


def neighbours(rows: Any, queries: Any, k: int) -> Neighbours:
    """Returns the k rows with the highest cosine similarity to each query, nearest first.

    With fewer than k rows, all are returned. Distances (M, K) are Euclidean, between rows scaled to unit
    length; a row of zeros is not scaled.
    """
    from scipy.sparse import issparse

    k = min(k, rows.shape[0])
    if not issparse(rows):
        return retrieve(_normalize_rows(rows), _normalize_rows(queries), k)
    from sklearn.neighbors import NearestNeighbors
    from sklearn.preprocessing import normalize

    index = NearestNeighbors(n_neighbors=k, algorithm="brute", metric="euclidean").fit(normalize(rows))
    distance_MK, index_MK = index.kneighbors(normalize(queries))
    return Neighbours(torch.from_numpy(distance_MK), torch.from_numpy(index_MK))


def _normalize_rows(rows: Any) -> Tensor:
    return functional.normalize(torch.from_numpy(np.array(rows, dtype=np.float32)), dim=1)


def _fit(problem: Problem) -> Fitted:
    val_neighbours = neighbours(problem.rows, problem.validation, max(KS))

    def vote(nearest: Neighbours, k: int, temperature: float) -> Tensor:
        return knn_probabilities(nearest, problem.targets, problem.task, k, temperature, problem.n_classes)

    scores = {}
    for k in KS:
        for temperature in TEMPERATURES:
            problem.check_stop()
            scores[k, temperature] = problem.score(vote(val_neighbours, k, temperature))
    k, temperature = max(scores, key=lambda setting: scores[setting])
    settings = {"k": torch.tensor(k), "temperature": torch.tensor(temperature, dtype=torch.float64)}
    return Fitted(
        lambda rows: vote(neighbours(problem.rows, rows, k), k, temperature),
        {"k": k, "temperature": temperature},
        {**_training_tensors(problem), **settings},
    )


def _training_tensors(problem: Problem) -> dict[str, Tensor]:
    """Returns training rows and targets as tensors by name; unknown entries of label rows count as absent."""
    from scipy.sparse import issparse

    rows, targets, tensors = problem.rows, problem.targets, dict[str, Tensor]()
    if issparse(rows):
        for name in ("data", "indices", "indptr"):
            tensors[name] = torch.from_numpy(np.array(getattr(rows, name)))
        tensors["shape"] = torch.tensor(rows.shape)
    else:
        tensors["rows"] = torch.from_numpy(np.array(rows, dtype=np.float32))
    if isinstance(targets, LabelRows):
        return tensors | {"label_offsets": targets.offsets, "label_columns": targets.columns}
    return tensors | {"classes": targets}


def _restore(task: Task, n_classes: int, tensors: Mapping[str, Tensor]) -> Callable[[Any], Tensor]:
    from scipy.sparse import csr_array

    k, temperature = int(tensors["k"]), float(tensors["temperature"])
    if "rows" in tensors:
        train_rows: Any = tensors["rows"].numpy()
    else:
        parts = tuple(tensors[name].numpy() for name in ("data", "indices", "indptr"))
        train_rows = csr_array(parts, shape=tuple(tensors["shape"].tolist()))
    if "classes" in tensors:
        targets: Tensor | LabelRows = tensors["classes"]
    else:
        targets = LabelRows(tensors["label_offsets"], tensors["label_columns"], n_classes)
    return lambda rows: knn_probabilities(
        neighbours(train_rows, rows, k), targets, task, k, temperature, n_classes
    )


def _declare_baseline(reads: Part, features: str) -> Baseline:
    return Baseline(f"{reads}_knn", f"{features} and nearest neighbours", (reads,), _fit, restore=_restore)


TFIDF_KNN = _declare_baseline("tfidf", "TF-IDF")
PIXELS_KNN = _declare_baseline("pixels", "pixels")
COLUMN_KNN = _declare_baseline("column", "the data set's vectors")
ENCODER_KNN = _declare_baseline("encoder", "outputs of the frozen encoder")
