"""Thresholded labels for every (k, lambda, temperature) at once.

`threshold_sweep`, with one given threshold, is exact. A cell's blend m + lambda (q - m) is monotone in
lambda, so that it crosses the threshold at most once: at lambda* = (t - m) / (q - m). All counts follow from
where on the grid each cell crosses.

`quantised_sweep` chooses one threshold at every setting, with probabilities rounded to levels. A cell is
predicted where m + lambda (q - m) >= t, which depends on its pair (m, q) alone. So for each k and temperature
the cells are counted by their pair, once; each lambda then sorts pairs instead of cells. This order is the
same for all k and temperatures: a sparse 0/1 matrix from pairs to steps of (lambda, threshold).

m is rounded to one of B levels that begin at true entries and hold at most P / (B - 2) of these each: with
no more true entries than levels, lambda = 0 is exact. q is rounded by its root, to (i / (B - 1))^2, and moves
by at most (2 sqrt(q) + d) d with d = 1 / (2 (B - 1)). A threshold lies after every B / 4 pairs in the order
of their blends.

Shapes: M queries, L labels, E cells, X crossing cells, P true entries, B levels, G lambdas, J steps, U groups
(1, or L). Cells of which the targets do not tell whether they are true are counted nowhere.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Self

import numpy as np
import torch
from scipy import sparse

from mlcl.evaluation.knn import Ballot
from mlcl.evaluation.metric import Metric
from mlcl.evaluation.predictions import Counts
from mlcl.evaluation.tasks import Array, array, known_entries
from mlcl.evaluation.vote_cells import Grid, make_vote_cells
from mlcl.labels import LabelRows


def threshold_sweep(
    votes: Ballot,
    targets: LabelRows,
    model_ML: Array,
    grid: Grid,
    threshold: float,
    pooled: bool,
) -> Iterator[Counts]:
    """Counts (G, L) of `evaluate(..., blend(...))`, exactly, for every temperature and then every k.

    With `pooled` the labels are added up to one, (G, 1), for metrics that need no more.
    """
    limit = float(np.float32(threshold))
    votes, known_ML = _known(votes, targets)
    slots = make_vote_cells(votes, grid.ks, (model_ML >= limit) & known_ML)
    m_E = model_ML[slots.row, slots.column].astype(np.float64)
    true_E = slots.true(targets)
    label_E = np.zeros_like(slots.column) if pooled else slots.column
    n_labels = 1 if pooled else targets.width
    column_P = array(targets.columns)
    true_L = np.full(1, len(column_P)) if pooled else np.bincount(column_P, minlength=n_labels)
    high_m_E = m_E >= limit
    start_L = np.bincount(label_E[high_m_E], minlength=n_labels)
    start_right_L = np.bincount(label_E[high_m_E & true_E], minlength=n_labels)
    for temperature in grid.temperatures:
        for q_E in slots.shares(temperature):
            cells_X = np.flatnonzero((q_E >= limit) != high_m_E)
            rises_X = ~high_m_E[cells_X]
            at_X = _crossing(m_E[cells_X], q_E[cells_X], rises_X, limit, grid.lambda_G)
            sign_X, label_X, right_X = np.where(rises_X, 1, -1), label_E[cells_X], true_E[cells_X]
            change = grid.totals(label_X, at_X, sign_X, n_labels)
            change_right = grid.totals(label_X, at_X, sign_X * right_X, n_labels)
            yield Counts(start_right_L + change_right, start_L + change, true_L, int(known_ML.sum()))


def _known(votes: Ballot, targets: LabelRows) -> tuple[Ballot, Array]:
    """The votes for known cells, and which cells (M, L) bool are known."""
    known_ML = known_entries(targets)
    if known_ML is None:
        return votes, np.ones((len(targets), targets.width), dtype=bool)
    kept_V = known_ML[votes.row, votes.column]
    row, column, rank = (part[kept_V] for part in (votes.row, votes.column, votes.rank))
    return replace(votes, row=row, column=column, rank=rank), known_ML


def _crossing(m_X: Array, q_X: Array, rises_X: Array, limit: float, lambda_G: Array) -> Array:
    """First grid index (X,) at which the blend, as rounded, is on the other side; G where it is at none."""
    slope_X = q_X - m_X
    at_X = np.searchsorted(lambda_G, (limit - m_X) / slope_X)

    def crossed(index_X: Array) -> Array:
        blend_X = m_X + lambda_G[np.clip(index_X, 0, len(lambda_G) - 1)] * slope_X
        return np.asarray((blend_X >= limit) == rises_X)

    # The closed form is rounded: step on until the blend itself agrees.
    while True:
        back = (at_X > 0) & crossed(at_X - 1)
        ahead = (at_X < len(lambda_G)) & ~crossed(at_X)
        if not (back.any() or ahead.any()):
            return np.asarray(at_X)
        at_X = at_X - back + (ahead & ~back)


POOLED_LEVELS, LABEL_LEVELS = 48, 24


@dataclass(frozen=True)
class Levels:
    """The levels of m, of which each but the first begins at an edge, and of q; `count` (B) of both."""

    count: int
    edges: Array
    value: Array

    @classmethod
    def of(cls, model_ML: Array, targets: LabelRows, metric: Metric) -> Self:
        """The levels for the probabilities of the rows that choose."""
        count = POOLED_LEVELS if metric.pooled else LABEL_LEVELS
        positives = model_ML[array(targets.row_index()), array(targets.columns)].astype(np.float64)
        edges = np.unique(positives)
        if len(edges) > count - 1:
            edges = np.unique(np.quantile(positives, np.linspace(0, 1, count - 1), method="lower"))
        level_P = np.searchsorted(edges, positives, side="right")
        size = np.maximum(np.bincount(level_P, minlength=count), 1)
        value = np.bincount(level_P, positives, minlength=count) / size
        value[0] = edges[0] / 2 if len(edges) else 0
        value[len(edges) + 1 :] = 1
        return cls(count, edges, value)

    def of_model(self, probability: Array) -> Array:
        """The levels of m, int64."""
        return np.searchsorted(self.edges, probability.astype(np.float64), side="right")

    def of_votes(self, probability: Array) -> Array:
        """The closest levels of q by root, int64."""
        return (np.sqrt(probability) * (self.count - 1) + 0.5).astype(np.int64)

    def sorting(self, lambda_G: Array) -> sparse.csr_array:
        """1 where a pair of levels lies in a step (G * J, B * B), the steps from high to low."""
        m_P = np.repeat(self.value, self.count)
        q_P = np.tile((np.arange(self.count) / (self.count - 1)) ** 2, self.count)
        blend_GP = m_P + lambda_G[:, None] * (q_P - m_P)
        place_GP = np.empty(blend_GP.shape, dtype=np.int64)
        order_GP = np.argsort(-blend_GP, axis=1, kind="stable")
        np.put_along_axis(place_GP, order_GP, np.arange(len(m_P))[None], axis=1)
        steps = 4 * self.count
        row = place_GP * steps // len(m_P) + np.arange(len(lambda_G))[:, None] * steps
        column = np.broadcast_to(np.arange(len(m_P)), row.shape)
        shape = (len(lambda_G) * steps, len(m_P))
        return sparse.csr_array((np.ones(row.size), (row.reshape(-1), column.reshape(-1))), shape=shape)


def quantised_sweep(
    votes: Ballot, targets: LabelRows, model_ML: Array, grid: Grid, metric: Metric, levels: Levels
) -> Iterator[Array]:
    """The metric (G, J) of each threshold on rounded probabilities, for every temperature and then every k.

    `metric` is one of `counts`. The thresholds fall; they are the same in all calls with the same levels.
    """
    assert metric.counts is not None
    sorting, (votes, known_ML) = levels.sorting(grid.lambda_G), _known(votes, targets)
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
    """How many known cells, and how many true ones, have each pair (U, 2, B * B)."""
    cells = make_vote_cells(votes, grid.ks, np.zeros(model_ML.shape, dtype=bool))
    true_E = cells.true(targets)
    n_groups, n_pairs = (1 if pooled else targets.width), levels.count**2
    group_L = np.arange(targets.width) * (0 if pooled else n_pairs)
    pair_ML = group_L + levels.of_model(model_ML) * levels.count
    pair_E = pair_ML[cells.row, cells.column]

    def count(pair: Array, true: Array) -> Array:
        both = [np.bincount(each, minlength=n_groups * n_pairs) for each in (pair, pair[true])]
        return np.stack(both).reshape(2, n_groups, n_pairs).transpose(1, 0, 2)

    # Cells without a vote have q = 0 at every setting: all cells, less those that are voted for.
    true_ML = targets.dense(torch.bool).numpy()
    silent = count(pair_ML[known_ML], true_ML[known_ML]) - count(pair_E, true_E)
    for temperature in grid.temperatures:
        for q_E in cells.shares(temperature):
            yield (silent + count(pair_E + levels.of_votes(q_E), true_E)).astype(np.float64)
