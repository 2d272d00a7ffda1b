"""Predicts by the votes of nearest neighbours, and measures the labels that they share with their query.

Shapes: M queries, K neighbours, N datastore rows, C classes, L labels, A aspects, R vote rows (M, or M * A),
V votes or label entries.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from mlcl.evaluation.retrieval import Neighbours
from mlcl.evaluation.tasks import Array, Targets, Task, array, as_classes, as_rows, check_task
from mlcl.labels import LabelRows


@dataclass(frozen=True)
class Ballot:
    """V votes, each of one neighbour for one column of one vote row.

    A vote row is a query, or with aspects a query's aspect (row = query * A + aspect). The arrays `row`,
    `column` and `rank`, the position of the neighbour, are (V,) int64, sorted by row and then rank.
    `distance` (R, K) is float64; `known` (R, K) says whether a neighbour's class is known, None if all are.
    `shape` is the shape of the prediction, (M, C), (M, L) or (M, A, C).
    """

    row: Array
    column: Array
    rank: Array
    distance: Array
    known: Array | None
    shape: tuple[int, ...]


def knn_probabilities(
    neighbours: Neighbours, labels: Targets, task: Task, k: int, temperature: float, n_classes: int
) -> Tensor:
    """Returns the vote of the k nearest: y = sum_i alpha_i y_i with alpha = softmax(-d / temperature).

    A neighbour whose class is unknown has no vote, and the other neighbours' weights add up to 1; if the
    classes of all neighbours are unknown, every class gets the same probability. An unknown entry of a
    neighbour counts as absent. Sums are float64, in the order of the neighbours.
    Source: kNN-MLTC Eq. 1.

    Args:
        neighbours: The nearest neighbours of M queries, from `retrieve`.
        labels: The labels of the datastore: classes (N,), label rows, or classes (N, A).
        task: The kind of task.
        k: The number of neighbours that vote.
        temperature: The temperature of the neighbours' weights.
        n_classes: The number of classes C; not used for label rows.

    Returns:
        Probabilities, float32 (M, C), (M, L) or (M, A, C).

    Raises:
        ValueError: `k` is less than 1, `temperature` is not positive, the labels do not fit the task, or a
            neighbour's class is not below C.

    Example:
        >>> train, queries = torch.eye(3), torch.tensor([[1.0, 0.1, 0.0]])
        >>> neighbours = retrieve(train, queries, 2)
        >>> knn_probabilities(neighbours, torch.tensor([1, 0, 0]), "single", 1, 1.0, 2).tolist()
        [[0.0, 1.0]]
    """
    votes = ballot(neighbours, labels, task, k, n_classes)
    weight_RK = vote_weights(votes.distance, votes.known, temperature)
    key_V = votes.row * votes.shape[-1] + votes.column
    sum_RC = np.bincount(key_V, weight_RK[votes.row, votes.rank], int(np.prod(votes.shape)))
    total_R1 = np.cumsum(weight_RK, axis=1)[:, -1:]
    probability_RC = share(sum_RC.reshape(-1, votes.shape[-1]), total_R1, votes.shape[-1])
    return torch.from_numpy(probability_RC.reshape(votes.shape))


def blend(knn: Tensor, model: Tensor, lambda_: float) -> Tensor:
    """Blends the probabilities of neighbours and model, model + lambda * (knn - model), in float64.

    In this form the result is monotone in lambda despite rounding. In float32, different probabilities of two
    classes could become equal.
    Source: kNN-MLTC section 3.2.

    Example:
        >>> blend(torch.tensor([1.0]), torch.tensor([0.5]), 0.5).tolist()
        [0.75]
    """
    model = model.double()
    return model + lambda_ * (knn.double() - model)


def vote_weights(distance_RK: Array, known_RK: Array | None, temperature: float) -> Array:
    """Returns exp((d_first - d) / temperature) (R, K) float64; 0 for neighbours whose class is unknown.

    d_first is the distance of the nearest neighbour whose class is known. That neighbour has the weight 1, so
    no sum underflows or overflows, and a weight does not depend on k. Raises ValueError if `temperature` is
    not positive.
    """
    if not temperature > 0:
        raise ValueError(f"temperature must be positive: {temperature}")
    if known_RK is None:
        return np.asarray(np.exp((distance_RK[:, :1] - distance_RK) / temperature))
    first_R1 = known_RK.argmax(axis=1)[:, None]
    nearer_RK = np.minimum(np.take_along_axis(distance_RK, first_R1, 1) - distance_RK, 0)
    return np.where(known_RK, np.exp(nearer_RK / temperature), 0)


def share(votes: Array, total: Array, n_classes: int) -> Array:
    """Returns votes divided by their total, as float32; 1 / n_classes where the total is 0."""
    empty = total == 0
    return np.where(empty, 1 / n_classes, votes / np.where(empty, 1, total)).astype(np.float32)


def ballot(neighbours: Neighbours, labels: Targets, task: Task, k: int, n_classes: int) -> Ballot:
    """Returns the votes of the k nearest neighbours, or of all if fewer.

    Raises ValueError if k < 1, if the labels do not fit the task, or if a neighbour has no label or a class
    that is not below `n_classes`.
    """
    check_task(task)
    if k < 1:
        raise ValueError(f"k must be at least 1: {k}")
    index_MK = array(neighbours.index)[:, :k]
    distance_MK = array(neighbours.distance)[:, :k].astype(np.float64)
    if (last_row := int(index_MK.max(initial=-1))) >= len(labels):
        raise ValueError(f"{len(labels)} labels for a datastore of {last_row + 1} rows or more")
    if task == "multi_label":
        index_V = torch.from_numpy(np.ascontiguousarray(index_MK).reshape(-1))
        rows = as_rows(labels).without_unknown().take(index_V)
        row, rank = np.divmod(array(rows.row_index()), index_MK.shape[1])
        return Ballot(row, array(rows.columns), rank, distance_MK, None, (len(index_MK), rows.width))
    classes = as_classes(labels)
    if classes.ndim != (2 if task == "aspects" else 1):
        raise ValueError(f"labels {classes.shape} do not fit the task {task}")
    class_RK = classes[index_MK]
    shape: tuple[int, ...] = (len(index_MK), n_classes)
    if task == "aspects":
        n_aspects = class_RK.shape[2]
        shape = (len(index_MK), n_aspects, n_classes)
        class_RK = class_RK.transpose(0, 2, 1).reshape(-1, index_MK.shape[1])
        distance_MK = np.repeat(distance_MK, n_aspects, axis=0)
    known_RK = class_RK >= 0
    if (largest := int(class_RK.max(initial=-1))) >= n_classes:
        raise ValueError(f"class {largest} among the labels of {n_classes} classes")
    row, rank = known_RK.nonzero()
    known = None if known_RK.all() else known_RK
    return Ballot(row, class_RK[row, rank], rank, distance_MK, known, shape)


def neighbour_overlap(
    neighbours: Neighbours, train_labels: LabelRows, query_labels: LabelRows, k: int
) -> float:
    """Returns the fraction of the k neighbours' labels that the query has too, as a mean over queries.

    For a query q with neighbours n: sum_n |y_n & y_q| / sum_n |y_n|, without labels that are unknown for the
    query. Queries whose neighbours have no label are left out; NaN if no query remains. The paper describes
    the statistic in words only; this is the closest reading. Raises ValueError if `query_labels` are not
    those of the queries, or have another width than `train_labels`.
    Source: kNN-MLTC Table 6.
    """
    width = train_labels.width
    shape, expected = (len(query_labels), query_labels.width), (len(neighbours.index), width)
    if shape != expected:
        raise ValueError(f"labels of the queries; found: {shape}; allowed: {expected}")
    votes = ballot(neighbours, train_labels, "multi_label", k, width)
    row_V, cell_V = votes.row, votes.row * width + votes.column
    if query_labels.unknown is not None:
        known_V = ~np.isin(cell_V, array(query_labels.unknown.cells()))
        row_V, cell_V = row_V[known_V], cell_V[known_V]
    shared_V = np.isin(cell_V, array(query_labels.cells()))
    labels_M = np.bincount(row_V, minlength=len(votes.distance))
    share_M = np.bincount(row_V, shared_V, len(votes.distance)) / np.maximum(labels_M, 1)
    return float(share_M[labels_M > 0].mean()) if labels_M.any() else float("nan")


def label_similarity(query: LabelRows, candidates: LabelRows) -> Array:
    """Computes the number of labels that each of `candidates` shares with the one row `query`.

    It is C_qj = y_q . y_j (N,). Raises ValueError for more than one query. Source: kNN-MLTC Eq. 3.
    """
    if len(query) != 1:
        raise ValueError(f"one query is compared with others, not {len(query)}")
    shared_V = np.isin(array(candidates.columns), array(query.columns))
    return np.bincount(array(candidates.row_index())[shared_V], minlength=len(candidates))
