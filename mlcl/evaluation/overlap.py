"""The labels that rows share: neighbours with their query, and any rows with one.

Shapes: M queries, K neighbours, N rows, V label entries of neighbours or of rows.
"""

from __future__ import annotations

import numpy as np

from mlcl.evaluation.knn import ballot
from mlcl.evaluation.neighbour_merge import Neighbours
from mlcl.evaluation.tasks import Array, array
from mlcl.labels import LabelRows


def neighbour_overlap(
    neighbours: Neighbours, train_labels: LabelRows, query_labels: LabelRows, k: int
) -> float:
    """Share of the k nearest neighbours' labels that the query has, mean over queries.

    For a query q with neighbours n: sum_n |y_n & y_q| / sum_n |y_n|. Queries whose neighbours have no label
    are left out; NaN where no query remains. The paper states the statistic in words alone; this is the
    nearest reading.
    Source: kNN-MLTC Table 6.
    """
    width = train_labels.width
    votes = ballot(neighbours, train_labels, "multi_label", k, width)
    own = array(query_labels.row_index() * width + query_labels.columns)
    shared_V = np.isin(votes.row * width + votes.column, own)
    labels_M = np.bincount(votes.row, minlength=len(votes.distance))
    share_M = np.bincount(votes.row, shared_V, len(votes.distance)) / np.maximum(labels_M, 1)
    return float(share_M[labels_M > 0].mean()) if labels_M.any() else float("nan")


def label_similarity(query: LabelRows, others: LabelRows) -> Array:
    """C_qj = y_q . y_j (N,): how many labels each of `others` shares with the one row `query`.

    Raises ValueError for more than one query. Source: kNN-MLTC Eq. 3.
    """
    if len(query) != 1:
        raise ValueError(f"one query is compared with others, not {len(query)}")
    shared_V = np.isin(array(others.columns), array(query.columns))
    return np.bincount(array(others.row_index())[shared_V], minlength=len(others))
