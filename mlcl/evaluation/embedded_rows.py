"""The embeddings of a split with the label sets of its rows; values needed by several metrics are cached.

Shapes: M rows with a label, D embedding, L labels, Q queries, B queries of a chunk, K nearest items.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import scipy
import torch
from threadpoolctl import threadpool_limits
from torch import Tensor

from mlcl.evaluation.retrieval import retrieve
from mlcl.evaluation.tasks import Array, array
from mlcl.labels import LabelRows

NEAREST = 10
"""The number of nearest rows that retrieval metrics consider."""
CHUNK = 256
"""The number of queries that are compared with all items at once."""


@dataclass(frozen=True)
class Gains:
    """The relevance (Q, K) float64 of retrieved items.

    `found` has the relevance of the K items nearest to each query, nearest first; `ideal` has the relevance
    of the K most relevant items, most relevant first. The first column of `ideal` is positive.
    """

    found: Array
    ideal: Array


@dataclass(frozen=True)
class EmbeddedRows:
    """The embeddings (M, D) float32 of M rows, and the label sets of these rows, which are never empty."""

    embeddings: Tensor
    labels: LabelRows

    @classmethod
    def of(cls, embeddings: Tensor, labels: LabelRows) -> EmbeddedRows:
        """Returns the rows that have a label, with their embeddings and label sets."""
        rows = torch.nonzero(labels.counts() > 0).flatten()
        return cls(embeddings[rows], labels.take(rows))

    @cached_property
    def gains(self) -> Gains:
        """The relevance of the items found when every row is a query and the other M - 1 rows are the items.

        K is 10, or M - 1 if that is less. The relevance of item j to query q is the Jaccard coefficient of
        their label sets, J_qj = |S_q & S_j| / |S_q | S_j|, over the labels that are known for both rows.
        Items are ordered by Euclidean distance, at equal distance by row number. Queries that share no label
        with any item are left out.
        """
        rows = len(self.labels)
        n_nearest = min(NEAREST, rows - 1)
        if n_nearest < 1:
            return Gains(np.empty((0, 1)), np.empty((0, 1)))
        index_MK = array(retrieve(self.embeddings, self.embeddings, n_nearest + 1).index)
        is_self_MK = index_MK == np.arange(rows)[:, None]
        # A row with many duplicates may be missing among its own nearest rows; then the last one is dropped.
        is_self_MK[~is_self_MK.any(axis=1), -1] = True
        near_MK = index_MK[~is_self_MK].reshape(-1, n_nearest)
        label_ML = _to_sparse(self.labels)
        unknown = None if self.labels.known() is None else self.labels.unknown
        unknown_ML = None if unknown is None else _to_sparse(unknown)
        found, ideal = np.empty((rows, n_nearest)), np.empty((rows, n_nearest))
        for first in range(0, rows, CHUNK):
            query_B = np.arange(first, min(first + CHUNK, rows))
            jaccard_BM = _jaccard_coefficients(label_ML, unknown_ML, query_B)
            found[query_B] = np.take_along_axis(jaccard_BM, near_MK[query_B], axis=1)
            jaccard_BM[np.arange(len(query_B)), query_B] = -1
            ideal[query_B] = -np.sort(-jaccard_BM, axis=1)[:, :n_nearest]
        answered = ideal[:, 0] > 0
        return Gains(found[answered], ideal[answered])

    @cached_property
    def classes(self) -> Array:
        """A number (M,) for each row's label set; rows with equal sets have equal numbers."""
        sets = [tuple(labels) for labels in self.labels.lists()]
        number = {labels: index for index, labels in enumerate(dict.fromkeys(sets))}
        return np.array([number[labels] for labels in sets], dtype=np.int64)

    @cached_property
    def clusters(self) -> Array:
        """Each row's cluster (M,), from k-means with seed 0 and as many clusters as there are `classes`."""
        from sklearn.cluster import KMeans  # slow to import, and rarely needed

        # With several threads, the last bits of sums would differ from run to run.
        with threadpool_limits(1):
            model = KMeans(n_clusters=int(self.classes.max(initial=0)) + 1, random_state=0)
            return np.asarray(model.fit_predict(array(self.embeddings).astype(np.float64)))


def _to_sparse(rows: LabelRows) -> scipy.sparse.csr_array:
    """Returns label rows as a sparse matrix (M, L) with a one for each label."""
    entries = np.ones(len(rows.columns)), array(rows.columns), array(rows.offsets)
    return scipy.sparse.csr_array(entries, shape=(len(rows), rows.width))


def _jaccard_coefficients(
    label_ML: scipy.sparse.csr_array, unknown_ML: scipy.sparse.csr_array | None, query_B: Array
) -> Array:
    """Returns the Jaccard coefficients (B, M) of the label sets of the rows `query_B` with all label sets.

    The coefficient of two empty sets is 0. A label that one row has and that is unknown for the other row,
    according to `unknown_ML`, is ignored.
    """
    size_M = np.diff(label_ML.indptr)
    shared_BM = (label_ML[query_B] @ label_ML.T).toarray()
    union_BM = size_M[query_B, None] + size_M - shared_BM
    if unknown_ML is None:
        return np.asarray(shared_BM / union_BM)
    union_BM -= (label_ML[query_B] @ unknown_ML.T).toarray() + (unknown_ML[query_B] @ label_ML.T).toarray()
    return np.asarray(np.divide(shared_BM, union_BM, out=np.zeros_like(shared_BM), where=union_BM > 0))
