"""Computes counts and right predictions at every setting (k, lambda, temperature) of the neighbours.

A setting blends the neighbours' probability q with the model's m, as m + lambda (q - m). A cell is an entry
of the prediction, a row and a class or label. Only few cells can change a result: the labels of neighbours
and the labels that the model predicts; for classes the neighbours' classes, the true class and the class that
the model predicts. `sweep_counts` and `sweep_hits` blend these cells at every setting.

If a threshold is chosen on validation, too, probabilities are rounded to a few values, the levels. Whether a
cell is predicted at a setting and threshold depends on its pair of m and q alone. So for each k and
temperature `sweep_thresholds` counts the cells by their pair, and each lambda sorts pairs instead of cells.
The order of pairs is equal for all k and temperatures; it is stored as a sparse 0/1 matrix from pairs to
steps of (lambda, threshold).

Shapes: M queries, K neighbours, R vote rows, C columns (classes or labels), L labels, E cells of (R, C), V
votes, B levels, P pairs of levels, G lambdas, J steps, U groups of labels (1, or L).
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import scipy
import torch

from mlcl.evaluation.knn import Ballot, share, vote_weights
from mlcl.evaluation.metric import Metric
from mlcl.evaluation.predictions import Counts
from mlcl.evaluation.tasks import Array, array, known_entries
from mlcl.labels import LabelRows

POOLED_LEVELS, LABEL_LEVELS = 48, 24
CLOSE = 1e-12
"""Probabilities closer than this are compared only by their blends at each lambda, not before blending."""


@dataclass(frozen=True)
class Grid:
    """The values of k, of lambda and of the temperature to search; each list ascends without duplicates."""

    ks: list[int]
    lambdas: list[float]
    temperatures: list[float]

    @property
    def settings(self) -> list[tuple[int, float, float]]:
        """Every (k, lambda, temperature); the temperature varies fastest, then lambda."""
        return list(itertools.product(self.ks, self.lambdas, self.temperatures))


class VoteCells:
    """The cells of an R x C prediction that a setting can change, and the votes for them.

    These are the cells with a vote of one of the `ks[-1]` nearest neighbours, and the cells that the mask
    `keep_RC` selects, sorted by row and then column. `index` maps row * C + column to the number of the cell,
    -1 for other cells.
    """

    def __init__(self, votes: Ballot, ks: Sequence[int], keep_RC: Array) -> None:
        self._votes, self._ks = votes, ks
        key_V = votes.row * keep_RC.shape[1] + votes.column
        used = keep_RC.reshape(-1).copy()
        used[key_V] = True
        cells = np.flatnonzero(used)
        self.index = np.full(len(used), -1)
        self.index[cells] = np.arange(len(cells))
        self.row, self.column = np.divmod(cells, keep_RC.shape[1])
        weight_V = votes.row * votes.distance.shape[1] + votes.rank
        # For each k the cells and the weights' indices of the votes that the previous k does not have.
        self._steps = []
        for previous_k, k in zip((0, *ks), ks, strict=False):
            added_V = (votes.rank >= previous_k) & (votes.rank < k)
            self._steps.append((self.index[key_V[added_V]], weight_V[added_V]))

    def is_true(self, targets: LabelRows) -> Array:
        """Returns for each cell (E,) whether its label is true for its row, according to `targets`."""
        true_E = np.zeros(len(self.row), dtype=bool)
        cell = self.index[array(targets.row_index()) * targets.width + array(targets.columns)]
        true_E[cell[cell >= 0]] = True
        return true_E

    def probabilities(self, temperatures: Sequence[float]) -> Iterator[Array]:
        """Yields the neighbours' probabilities (E,) float64 for every temperature and then every k.

        Sums run over the neighbours in order, so they equal `knn_probabilities` to the last bit.
        """
        for temperature in temperatures:
            weight_RK = vote_weights(self._votes.distance, self._votes.known, temperature)
            total_RK = np.cumsum(weight_RK, axis=1)
            sum_E = np.zeros(len(self.row))
            for k, (cell, weight) in zip(self._ks, self._steps, strict=True):
                np.add.at(sum_E, cell, weight_RK.reshape(-1)[weight])
                total_E = total_RK[:, k - 1][self.row]
                yield share(sum_E, total_E, self._votes.shape[-1]).astype(np.float64)


def known_cells(votes: Ballot, targets: LabelRows) -> tuple[Ballot, Array]:
    """Returns the votes for known cells, and whether each cell is known (M, L) according to `targets`."""
    known_ML = known_entries(targets)
    if known_ML is None:
        return votes, np.ones((len(targets), targets.width), dtype=bool)
    kept_V = known_ML[votes.row, votes.column]
    row, column, rank = (part[kept_V] for part in (votes.row, votes.column, votes.rank))
    return replace(votes, row=row, column=column, rank=rank), known_ML


def sweep_counts(
    votes: Ballot, targets: LabelRows, model_ML: Array, grid: Grid, limit: float, *, pooled: bool
) -> Iterator[Counts]:
    """Yields the counts (G, L) of labels at the threshold `limit`, for every temperature and then every k.

    With `pooled` the counts of all labels are added up, (G, 1).
    """
    votes, known_ML = known_cells(votes, targets)
    cells = VoteCells(votes, grid.ks, (model_ML >= limit) & known_ML)
    m_E = model_ML[cells.row, cells.column].astype(np.float64)
    true_E = cells.is_true(targets)
    label_E = np.zeros_like(cells.column) if pooled else cells.column
    n_labels, column_N = 1 if pooled else targets.width, array(targets.columns)
    true_L = np.full(1, len(column_N)) if pooled else np.bincount(column_N, minlength=n_labels)

    def count(chosen_E: Array) -> Array:
        return np.bincount(label_E[chosen_E], minlength=n_labels)

    for q_E in cells.probabilities(grid.temperatures):
        predicted = [m_E + lambda_ * (q_E - m_E) >= limit for lambda_ in grid.lambdas]
        right_GL = np.stack([count(predicted_E & true_E) for predicted_E in predicted])
        yield Counts(right_GL, np.stack(list(map(count, predicted))), true_L, int(known_ML.sum()))


def sweep_hits(
    votes: Ballot, target_R: Array, model_RC: Array, group_R: Array, grid: Grid
) -> Iterator[Array]:
    """Yields the numbers of right predictions (G, groups) int64 for every temperature and then every k.

    Rows with the target -1 are left out. `group_R` is the number of each row's group, such as its aspect. The
    numbers are exact for lambdas up to 1 - 1e-8, and for 1.
    """
    every_R, true_R = np.arange(len(model_RC)), np.maximum(target_R, 0)
    # Without a vote all classes are equally probable, and class 0 is predicted.
    keep_RC = np.zeros(model_RC.shape, dtype=bool)
    keep_RC[every_R, true_R] = True
    keep_RC[every_R, model_RC.argmax(1)] = True
    keep_RC[:, 0] |= votes.known is not None
    cells = VoteCells(votes, grid.ks, keep_RC)
    m_E = model_RC[cells.row, cells.column].astype(np.float64)
    start_R = np.searchsorted(cells.row, every_R)
    truth_R = cells.index[every_R * model_RC.shape[1] + true_R]
    truth_E = truth_R[cells.row]
    is_truth_E, known_R, groups = truth_E == np.arange(len(truth_E)), target_R >= 0, int(group_R.max()) + 1
    above_E, below_E = m_E - m_E[truth_E] >= CLOSE, m_E - m_E[truth_E] <= -CLOSE

    def count(row_S: Array) -> Array:
        return np.bincount(group_R[row_S], minlength=groups)

    for q_E in cells.probabilities(grid.temperatures):
        # A row is wrong at every lambda if a class is above the true one in m and q, right if all are below.
        gap_E = q_E - q_E[truth_E]
        lost_R = np.logical_or.reduceat(above_E & (gap_E >= CLOSE), start_R)
        won_R = np.logical_and.reduceat(below_E & (gap_E <= -CLOSE) | is_truth_E, start_R)
        open_E = (known_R & ~lost_R & ~won_R)[cells.row]
        always_right = count(np.flatnonzero(known_R & won_R))
        parts = (value_E[open_E] for value_E in (cells.row, is_truth_E, m_E, q_E))
        yield np.stack([always_right + count(row_S) for row_S in _right_rows(grid.lambdas, *parts)])


def _right_rows(
    lambdas: Sequence[float], row_S: Array, is_truth_S: Array, m_S: Array, q_S: Array
) -> Iterator[Array]:
    """Yields, for each lambda, the rows whose true class is the first class with the highest blend."""
    row_R, start_R = np.unique(row_S, return_index=True)
    truth_S = np.repeat(np.flatnonzero(is_truth_S), np.diff(start_R, append=len(row_S)))
    before_truth_S = np.arange(len(row_S)) < truth_S
    for lambda_ in lambdas:
        blend_S = m_S + lambda_ * (q_S - m_S)
        beaten_S = (blend_S > blend_S[truth_S]) | ((blend_S == blend_S[truth_S]) & before_truth_S)
        yield row_R[~np.logical_or.reduceat(beaten_S, start_R)]


class Levels:
    """The levels to which probabilities are rounded.

    The model's probability m is rounded to one of B levels, whose edges are probabilities of true entries.
    Each level has at most the fraction 1 / (B - 2) of all true entries: with fewer true entries than levels,
    lambda = 0 is exact. The neighbours' probability q is rounded by its root, to (i / (B - 1))^2, and moves
    by at most (2 sqrt(q) + d) d with d = 1 / (2 (B - 1)). Thresholds lie after every B / 4 pairs in the order
    of their blends.
    """

    def __init__(self, targets: LabelRows, model_ML: Array, metric: Metric) -> None:
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
        """Returns the levels of model probabilities m, int64."""
        return np.searchsorted(self._edges, probability.astype(np.float64), side="right")

    def of_votes(self, probability: Array) -> Array:
        """Returns the closest levels of the neighbours' probabilities q, by their root, int64."""
        return (np.sqrt(probability) * (self.count - 1) + 0.5).astype(np.int64)

    def sort_pairs(self, lambda_G: Array) -> scipy.sparse.csr_array:
        """Returns a sparse matrix (G * J, P) that is 1 where a pair of levels is in a step.

        For each lambda the steps run from high to low blends.
        """
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
        return scipy.sparse.csr_array((np.ones(row.size), (row.reshape(-1), column.reshape(-1))), shape=shape)


def sweep_thresholds(
    votes: Ballot, targets: LabelRows, model_ML: Array, grid: Grid, metric: Metric, levels: Levels
) -> Iterator[Array]:
    """Yields a metric of counts (G, J) at J descending thresholds, for every temperature and then every k.

    Calls with equal `grid.lambdas` and `levels` have equal thresholds.
    """
    assert metric.counts is not None
    sorting, (votes, known_ML) = levels.sort_pairs(np.array(grid.lambdas)), known_cells(votes, targets)
    n_cells = int(known_ML.sum())
    true_L = np.bincount(array(targets.columns), minlength=targets.width)
    true_U = true_L.sum(keepdims=True) if metric.pooled else true_L
    for pairs_UCP in _pair_counts(votes, targets, known_ML, model_ML, grid, levels, pooled=metric.pooled):
        n_groups, _, n_pairs = pairs_UCP.shape
        sorted_pairs = sorting @ pairs_UCP.reshape(-1, n_pairs).T
        counts_GJUC = sorted_pairs.reshape(len(grid.lambdas), -1, n_groups, 2).cumsum(axis=1)
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
    """Yields how many known cells, and how many true ones of them, have each pair of levels (U, 2, P)."""
    cells = VoteCells(votes, grid.ks, np.zeros(model_ML.shape, dtype=bool))
    true_E = cells.is_true(targets)
    n_groups, n_pairs = (1 if pooled else targets.width), levels.count**2
    group_L = np.arange(targets.width) * (0 if pooled else n_pairs)
    pair_ML = group_L + levels.of_model(model_ML) * levels.count
    pair_E = pair_ML[cells.row, cells.column]

    def count(pair: Array, true: Array) -> Array:
        counts = [np.bincount(indices, minlength=n_groups * n_pairs) for indices in (pair, pair[true])]
        return np.stack(counts).reshape(2, n_groups, n_pairs).transpose(1, 0, 2)

    # Cells without a vote have q = 0 at every setting: all cells, less those with a vote.
    true_ML = targets.dense(torch.bool).numpy()
    without_vote = count(pair_ML[known_ML], true_ML[known_ML]) - count(pair_E, true_E)
    for q_E in cells.probabilities(grid.temperatures):
        yield (without_vote + count(pair_E + levels.of_votes(q_E), true_E)).astype(np.float64)
