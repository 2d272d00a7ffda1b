"""Metrics at every setting of the neighbours and every threshold, with probabilities rounded to levels.

Whether a cell is predicted at a setting and threshold depends on its pair of the model's probability m and
the neighbours' probability q alone. So for each k and temperature the cells are counted by their pair, and
each lambda sorts pairs instead of cells. The order is equal for all k and temperatures: a sparse 0/1 matrix
from pairs to steps of (lambda, threshold).

Shapes: M queries, L labels, E cells, B levels, P pairs of levels, G lambdas, J steps, U groups of labels (1,
or L).
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch
from scipy import sparse

from mlcl.evaluation.knn import Ballot
from mlcl.evaluation.knn_sweeps import Grid, VoteCells, known_cells
from mlcl.evaluation.metric import Metric
from mlcl.evaluation.predictions import Counts
from mlcl.evaluation.tasks import Array, array
from mlcl.labels import LabelRows

POOLED_LEVELS, LABEL_LEVELS = 48, 24


class Levels:
    """The levels to which probabilities are rounded.

    m is rounded to one of B levels that begin at true entries and hold at most one part in B - 2 of all true
    entries each: with no more true entries than levels, lambda = 0 is exact. q is rounded by its root, to
    (i / (B - 1))^2, and moves by at most (2 sqrt(q) + d) d with d = 1 / (2 (B - 1)). A threshold lies after
    every B / 4 pairs in the order of their blends.
    """

    def __init__(self, model_ML: Array, targets: LabelRows, metric: Metric) -> None:
        self.count = POOLED_LEVELS if metric.pooled else LABEL_LEVELS
        positives = model_ML[array(targets.row_index()), array(targets.columns)].astype(np.float64)
        self._edges = edges = np.unique(positives)
        if len(edges) > self.count - 1:
            quantiles = np.quantile(positives, np.linspace(0, 1, self.count - 1), method="lower")
            self._edges = edges = np.unique(quantiles)
        level = np.searchsorted(edges, positives, side="right")
        size = np.maximum(np.bincount(level, minlength=self.count), 1)
        self._value = np.bincount(level, positives, minlength=self.count) / size
        self._value[0] = edges[0] / 2 if len(edges) else 0
        self._value[len(edges) + 1 :] = 1

    def of_model(self, probability: Array) -> Array:
        """The levels of m, int64."""
        return np.searchsorted(self._edges, probability.astype(np.float64), side="right")

    def of_votes(self, probability: Array) -> Array:
        """The closest levels of q by root, int64."""
        return (np.sqrt(probability) * (self.count - 1) + 0.5).astype(np.int64)

    def sorting(self, lambda_G: Array) -> sparse.csr_array:
        """1 where a pair of levels lies in a step (G * J, P), the steps from high to low blends."""
        m_P = np.repeat(self._value, self.count)
        q_P = np.tile((np.arange(self.count) / (self.count - 1)) ** 2, self.count)
        blend_GP = m_P + lambda_G[:, None] * (q_P - m_P)
        rank_GP = np.empty(blend_GP.shape, dtype=np.int64)
        order_GP = np.argsort(-blend_GP, axis=1, kind="stable")
        np.put_along_axis(rank_GP, order_GP, np.arange(len(m_P))[None], axis=1)
        steps = 4 * self.count
        row = rank_GP * steps // len(m_P) + np.arange(len(lambda_G))[:, None] * steps
        column = np.broadcast_to(np.arange(len(m_P)), row.shape)
        shape = (len(lambda_G) * steps, len(m_P))
        return sparse.csr_array((np.ones(row.size), (row.reshape(-1), column.reshape(-1))), shape=shape)


def sweep_thresholds(
    votes: Ballot, targets: LabelRows, model_ML: Array, grid: Grid, metric: Metric, levels: Levels
) -> Iterator[Array]:
    """Yields a metric of counts (G, J) at falling thresholds, for every temperature and then every k.

    The thresholds are equal in all calls with the same levels.
    """
    assert metric.counts is not None
    sorting, (votes, known_ML) = levels.sorting(grid.lambda_G), known_cells(votes, targets)
    n_cells = int(known_ML.sum())
    true_L = np.bincount(array(targets.columns), minlength=targets.width)
    true_U = true_L.sum(keepdims=True) if metric.pooled else true_L
    for pairs_UCP in _pair_counts(votes, targets, known_ML, model_ML, grid, levels, pooled=metric.pooled):
        n_groups, _, n_pairs = pairs_UCP.shape
        sorted_pairs = sorting @ pairs_UCP.reshape(-1, n_pairs).T
        counts_GJUC = sorted_pairs.reshape(len(grid.lambda_G), -1, n_groups, 2).cumsum(axis=1)
        yield metric.counts(Counts(counts_GJUC[..., 1], counts_GJUC[..., 0], true_U, n_cells))


def _pair_counts(
    votes: Ballot,
    targets: LabelRows,
    known_ML: Array,
    model_ML: Array,
    grid: Grid,
    levels: Levels,
    *,
    pooled: bool,
) -> Iterator[Array]:
    """The number of known cells, and of true ones among them, with each pair of levels (U, 2, P)."""
    cells = VoteCells(votes, grid.ks, np.zeros(model_ML.shape, dtype=bool))
    true_E = cells.true(targets)
    n_groups, n_pairs = (1 if pooled else targets.width), levels.count**2
    group_L = np.arange(targets.width) * (0 if pooled else n_pairs)
    pair_ML = group_L + levels.of_model(model_ML) * levels.count
    pair_E = pair_ML[cells.row, cells.column]

    def count(pair: Array, true: Array) -> Array:
        both = [np.bincount(each, minlength=n_groups * n_pairs) for each in (pair, pair[true])]
        return np.stack(both).reshape(2, n_groups, n_pairs).transpose(1, 0, 2)

    # Cells without a vote have q = 0 at every setting: all cells, less those with a vote.
    true_ML = targets.dense(torch.bool).numpy()
    without_vote = count(pair_ML[known_ML], true_ML[known_ML]) - count(pair_E, true_E)
    for q_E in cells.probabilities(grid.temperatures):
        yield (without_vote + count(pair_E + levels.of_votes(q_E), true_E)).astype(np.float64)
