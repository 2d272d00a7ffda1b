"""Nearest neighbours, and the merging of those that were found in disjoint pieces of a datastore.

A distance depends on its row and its query alone, and rows are ordered by distance and then row number. So
the k nearest of all rows are among the k nearest of each piece, and merging them gives, to the last bit and
with ties, what one search of all rows gives.

Shapes: M queries, K neighbours, F found in all pieces, C of them that are no farther than the K-th: with ties
more than K a query.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from mlcl.evaluation.tasks import array


@dataclass(frozen=True)
class Neighbours:
    """`distance` (M, K) float32, Euclidean and ascending, and `index` (M, K) int64 into the datastore."""

    distance: Tensor
    index: Tensor


def merge(found: Sequence[Neighbours], k_max: int) -> Neighbours:
    """The k_max nearest of what was found in disjoint pieces, whose `index` counts the rows of all.

    The pieces may come in any order, with K of their own. With fewer than k_max in all, K is smaller.
    Raises ValueError for nothing found, for different numbers of queries, and for k_max < 1.
    """
    distance_MF = np.concatenate([array(each.distance) for each in found], axis=1)
    index_MF = np.concatenate([array(each.index) for each in found], axis=1)
    if not distance_MF.shape[1] or k_max < 1:
        raise ValueError(f"nothing to merge: {distance_MF.shape[1]} neighbours, k_max {k_max}")
    k = min(k_max, distance_MF.shape[1])
    kth_M1 = np.partition(distance_MF, k - 1, axis=1)[:, k - 1 : k]
    query_C, column_C = np.nonzero(distance_MF <= kth_M1)
    distance_C, index_C = distance_MF[query_C, column_C], index_MF[query_C, column_C]
    order_C = np.lexsort((index_C, distance_C, query_C))
    first_M = np.searchsorted(query_C, np.arange(len(distance_MF)))
    order_MK = order_C[first_M[:, None] + np.arange(k)]
    return Neighbours(torch.from_numpy(distance_C[order_MK]), torch.from_numpy(index_C[order_MK]))
