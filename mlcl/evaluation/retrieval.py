"""Finds exact nearest neighbours, and merges neighbours that were found in disjoint parts of a datastore.

A distance depends only on its row and its query, and rows are sorted by distance and then row number. So the
k nearest of all rows are among the k nearest rows of each part, and merging these gives, bit by bit and with
ties, the result of one search of all rows.

Shapes: N datastore rows, n rows of a block, M queries, D embedding, K neighbours, F neighbours found in all
parts, C of these that are no farther than the K-th (with ties more than K a query), U queries that are
searched again, B queries of a chunk, G distinct rows.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from mlcl.evaluation.tasks import Array, array, check_tensor

SLACK = 8
"""The number of neighbours that are searched beyond K, so that the K-th is seldom in doubt."""
CHUNK = 64
"""The number of queries whose candidates are measured in float64 at once."""
BLOCK = 131_072
"""The number of datastore rows that are searched at once; it limits the memory needed besides the rows
themselves."""


logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Neighbours:
    """The nearest datastore rows of M queries.

    `distance` has the Euclidean distances (M, K) float32, ascending, and `index` the row numbers in the
    datastore (M, K) int64.
    """

    distance: Tensor
    index: Tensor


def retrieve(datastore_ND: Tensor, queries_MD: Tensor, k_max: int) -> Neighbours:
    """Finds the nearest datastore rows of every query, nearest first; at equal distance the lower row first.

    faiss proposes rows by float32 matrix products, in which small distances lose their digits. The distances
    of the proposed rows are then computed again from differences in float64, and a query for which faiss'
    rounding may have missed a neighbour is searched again in float64. So a duplicate is at distance 0, and
    the result depends on neither batch nor threads. The rows are searched block by block and not copied.
    Source: kNN-MLTC section 3.2.

    Args:
        datastore_ND: The embeddings of the datastore's rows, float32.
        queries_MD: The embeddings of the queries, float32.
        k_max: The requested K; if there are fewer rows, K is their number, which is logged.

    Raises:
        ValueError: The datastore is empty, embeddings are not finite or differ in D, or k_max < 1.
        TypeError: Embeddings are not tensors.

    Example:
        >>> retrieve(torch.eye(3), torch.tensor([[1.0, 0.5, 0.0]]), 2).index.tolist()
        [[0, 1]]
    """
    for embeddings in (datastore_ND, queries_MD):
        check_tensor(embeddings)
    shapes = tuple(datastore_ND.shape), tuple(queries_MD.shape)
    if not len(shapes[0]) == len(shapes[1]) == 2 or shapes[0][1] != shapes[1][1]:
        raise ValueError(f"embeddings (N, D) and (M, D) do not fit; found: {shapes[0]} and {shapes[1]}")
    q_MD = _to_matrix(queries_MD)
    k = count_available(len(datastore_ND), k_max)
    nearest: list[Neighbours] = []
    for first in range(0, len(datastore_ND), BLOCK):
        block_nD = _to_matrix(datastore_ND[first : first + BLOCK])
        distance_MK, index_MK = _search(block_nD, q_MD, min(k, len(block_nD)))
        block_nearest = Neighbours(torch.from_numpy(distance_MK), torch.from_numpy(index_MK + first))
        nearest = [merge([*nearest, block_nearest], k)]
    return nearest[0]


def merge(parts: Sequence[Neighbours], k_max: int) -> Neighbours:
    """Returns the k_max nearest of the neighbours that were found in disjoint parts of a datastore.

    `parts` has the neighbours in each part, in any order, with any K, and row numbers of the whole datastore.
    If all parts together have fewer than k_max neighbours, K is their number. Raises ValueError if there are
    no neighbours, numbers of queries differ, or k_max < 1.
    """
    distance_MF = np.concatenate([array(part.distance) for part in parts], axis=1)
    index_MF = np.concatenate([array(part.index) for part in parts], axis=1)
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


def count_available(rows: int, k_max: int) -> int:
    """Returns the number of neighbours that a datastore of `rows` rows has, at most k_max.

    Logs a warning if there are fewer than k_max. Raises ValueError if there are no rows, or k_max < 1.
    """
    if rows < 1 or k_max < 1:
        raise ValueError(f"no neighbours: {rows} rows to choose from, k_max {k_max}")
    if rows < k_max:
        logger.warning("only %d neighbours instead of %d: the datastore has no more", rows, k_max)
    return min(rows, k_max)


def _search(x_nD: Array, q_MD: Array, k: int) -> tuple[Array, Array]:
    """Returns distances and row numbers (M, k) of the k nearest rows of a block."""
    import faiss  # imported late: a dry run does not need it

    approximate_MF, index_MF = faiss.knn(q_MD, x_nD, min(len(x_nD), k + SLACK))
    distance_MK, index_MK = np.empty((len(q_MD), k), np.float32), np.empty((len(q_MD), k), np.int64)
    for first in range(0, len(q_MD), CHUNK):
        rows = slice(first, first + CHUNK)
        index_BF = index_MF[rows]
        distance_BF = _distance(x_nD[index_BF], q_MD[rows, None])
        order_BK = np.lexsort((index_BF, distance_BF), axis=-1)[:, :k]
        distance_MK[rows] = np.take_along_axis(distance_BF, order_BK, 1)
        index_MK[rows] = np.take_along_axis(index_BF, order_BK, 1)
    if index_MF.shape[1] < len(x_nD) or (index_MF < 0).any():
        # A row that faiss did not propose may be as near as the K-th. faiss gives -1 where squares overflow.
        least_M = approximate_MF[:, -1] - _rounding_bound(x_nD, q_MD, np.float32)
        unsafe_U = np.flatnonzero(least_M <= distance_MK[:, -1].astype(np.float64) ** 2 * (1 + 1e-6))
        if len(unsafe_U):
            results = _search_float64(x_nD, q_MD[unsafe_U], k)
            for row, (distance_F, index_F) in zip(unsafe_U, results, strict=True):
                distance_MK[row], index_MK[row] = distance_F[:k], index_F[:k]
    return distance_MK, index_MK


def _distance(x: Array, q: Array) -> Array:
    difference = x - q.astype(np.float64)
    square = np.einsum("...d,...d->...", difference, difference)
    return np.asarray(np.sqrt(square), dtype=np.float32)


def _search_float64(x_nD: Array, q_UD: Array, k: int) -> Iterator[tuple[Array, Array]]:
    """Yields, for each query, distances and row numbers of at least its k nearest rows, nearest first.

    Equal rows are measured only once, because a collapsed encoder makes all rows candidates.
    """
    distinct_GD, group_n = np.unique(x_nD, axis=0, return_inverse=True)
    x_nD = x_nD.astype(np.float64)
    length_n = np.einsum("nd,nd->n", x_nD, x_nD)
    for first in range(0, len(q_UD), CHUNK):
        q_BD = q_UD[first : first + CHUNK].astype(np.float64)
        length_Bn = length_n + np.einsum("bd,bd->b", q_BD, q_BD)[:, None]
        square_Bn, rounding_B = length_Bn - 2 * q_BD @ x_nD.T, _rounding_bound(x_nD, q_BD, np.float64)
        for q_D, square_n, rounding in zip(q_BD, square_Bn, rounding_B, strict=True):
            kth = np.partition(square_n, k - 1)[k - 1]
            # 1e-6 covers rows whose distances differ in float64 and are equal in float32.
            index_F = np.flatnonzero(square_n <= kth + abs(kth) * 1e-6 + 2 * rounding)
            groups, member_F = np.unique(group_n[index_F], return_inverse=True)
            distance_F = _distance(distinct_GD[groups], q_D)[member_F]
            order_F = np.argsort(distance_F, kind="stable")
            yield distance_F[order_F], index_F[order_F]


def _rounding_bound(x_nD: Array, q_MD: Array, dtype: type[np.floating]) -> Array:
    """Returns a bound on the error of |x|^2 - 2 x.q + |q|^2 in `dtype`, for every query."""
    largest = np.sqrt(np.einsum("nd,nd->n", x_nD, x_nD).max())
    size_M = np.sqrt(np.einsum("md,md->m", q_MD, q_MD)) + largest
    return np.asarray((x_nD.shape[1] + 8) * float(np.finfo(dtype).eps) * size_M.astype(np.float64) ** 2)


def _to_matrix(embeddings: Tensor) -> Array:
    values = np.ascontiguousarray(array(embeddings), dtype=np.float32)
    if not np.isfinite(values).all():
        raise ValueError("embeddings are not finite")
    return values
