"""How many of the labels that the neighbours bring are the query's own.

Shapes: M queries, K neighbours, V label entries of neighbours.
"""

from __future__ import annotations

from typing import Literal

import numpy as np

from mlcl.evaluation.knn import ballot
from mlcl.evaluation.neighbour_merge import Neighbours
from mlcl.evaluation.tasks import Array, array
from mlcl.labels import LabelRows

Variant = Literal["pooled", "per_neighbour", "distinct"]


def neighbour_overlap(
    neighbours: Neighbours,
    train_labels: LabelRows,
    query_labels: LabelRows,
    k: int,
    variant: Variant = "pooled",
) -> float:
    """Share of the k nearest neighbours' labels that the query carries, mean over queries.

    `pooled`: sum_n |y_n & y_q| / sum_n |y_n|; `per_neighbour`: mean over n of |y_n & y_q| / |y_n|;
    `distinct`: |U & y_q| / |U| with U the union of the y_n. Neighbours without a label bring nothing and
    queries that are brought nothing are left out; NaN where no query remains. The paper states the statistic
    in words alone, of which `pooled` is the nearest reading.
    Source: kNN-MLTC Table 6.
    """
    votes = ballot(neighbours, train_labels, "multi_label", k, train_labels.width)
    width = train_labels.width
    key_V = votes.row * width + votes.column
    if variant == "distinct":
        key_V = np.unique(key_V)
    row_V = key_V // width
    shared_V = np.isin(key_V, _keys(query_labels, width))
    if variant == "per_neighbour":
        neighbour_V = row_V * votes.distance.shape[1] + votes.rank
        share, brings = _shares(neighbour_V, shared_V, votes.distance.size)
        row_V, shared_V = np.flatnonzero(brings) // votes.distance.shape[1], share[brings]
    share, brings = _shares(row_V, shared_V, len(votes.distance))
    return float(share[brings].mean()) if brings.any() else float("nan")


def _shares(group_V: Array, value_V: Array, n: int) -> tuple[Array, Array]:
    """Mean value of each group, and which groups have any."""
    size = np.bincount(group_V, minlength=n)
    return np.bincount(group_V, value_V, n) / np.maximum(size, 1), size > 0


def _keys(rows: LabelRows, width: int) -> Array:
    return array(rows.row_index() * width + rows.columns)
