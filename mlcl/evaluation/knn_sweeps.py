"""Counts and right predictions at every setting (k, lambda, temperature) of the neighbours, exactly.

A setting blends the neighbours' probability q with the model's m, as m + lambda (q - m), a line in lambda.

- The line of a label crosses a threshold t at most once, at lambda* = (t - m) / (q - m). So all counts follow
  from the index in the grid at which each cell crosses.
- The line of the true class is on top between the largest lambda at which it comes to pass another line and
  the smallest at which another passes it. Only the classes of neighbours, the true class, and the model's own
  choice can be on top.

Shapes: M queries, K neighbours, R vote rows, C columns (classes or labels), L labels, E cells of (R, C), V
votes, X crossing cells, G lambdas, S steps, P rows at one doubtful lambda each.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from mlcl.evaluation.knn import Ballot, share, vote_weights
from mlcl.evaluation.predictions import Counts
from mlcl.evaluation.tasks import Array, array, known_entries
from mlcl.labels import LabelRows

FLAT = 1e-6
"""Lines whose slopes differ by less are compared at every lambda, as rounding decides between them."""
NEAR = 1e-9
"""Grid lambdas this close to a crossing are evaluated; beyond, rounding cannot change which is higher."""


@dataclass(frozen=True)
class Grid:
    """The values of k, of lambda (G,) float64 and of the temperature, each ascending and distinct."""

    ks: list[int]
    lambda_G: Array
    temperatures: list[float]

    def totals(self, group_X: Array, index_X: Array, weight_X: Array, n_groups: int) -> Array:
        """The sum (G, groups) int64 of each group's weights at each lambda.

        `weight_X` counts from the lambda with the index `index_X` on; index G is never reached.
        """
        key_X = group_X * (len(self.lambda_G) + 1) + index_X
        steps = np.bincount(key_X, weight_X, n_groups * (len(self.lambda_G) + 1)).astype(np.int64)
        return np.ascontiguousarray(steps.reshape(n_groups, -1)[:, :-1].cumsum(axis=1).T)


class VoteCells:
    """The cells of an R x C prediction that a setting can change, and the votes for them.

    They are the cells with a vote of the `ks[-1]` nearest neighbours, and the cells of the mask `keep_RC`,
    ordered by row and then column. `index` maps row * C + column to the cell, -1 where there is none.
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
        # For each k the cells and the weights of the votes that it adds to those of the k before.
        self._steps = []
        for before, k in zip((0, *ks), ks, strict=False):
            added_V = (votes.rank >= before) & (votes.rank < k)
            self._steps.append((self.index[key_V[added_V]], weight_V[added_V]))

    def true(self, targets: LabelRows) -> Array:
        """Whether each cell (E,) is a label of its row."""
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
    """The votes for known cells, and whether each cell is known (M, L); unknown cells are not counted."""
    known_ML = known_entries(targets)
    if known_ML is None:
        return votes, np.ones((len(targets), targets.width), dtype=bool)
    kept_V = known_ML[votes.row, votes.column]
    row, column, rank = (part[kept_V] for part in (votes.row, votes.column, votes.rank))
    return replace(votes, row=row, column=column, rank=rank), known_ML


def sweep_counts(
    votes: Ballot, targets: LabelRows, model_ML: Array, grid: Grid, limit: float, *, pooled: bool
) -> Iterator[Counts]:
    """Yields counts (G, L) of labels from the threshold `limit` on, for every temperature and then every k.

    With `pooled` the labels are added up to one, (G, 1), for metrics that need no more.
    """
    votes, known_ML = known_cells(votes, targets)
    cells = VoteCells(votes, grid.ks, (model_ML >= limit) & known_ML)
    m_E = model_ML[cells.row, cells.column].astype(np.float64)
    true_E = cells.true(targets)
    label_E = np.zeros_like(cells.column) if pooled else cells.column
    n_labels = 1 if pooled else targets.width
    column_N = array(targets.columns)
    true_L = np.full(1, len(column_N)) if pooled else np.bincount(column_N, minlength=n_labels)
    high_m_E = m_E >= limit
    start_L = np.bincount(label_E[high_m_E], minlength=n_labels)
    start_right_L = np.bincount(label_E[high_m_E & true_E], minlength=n_labels)
    for q_E in cells.probabilities(grid.temperatures):
        cell_X = np.flatnonzero((q_E >= limit) != high_m_E)
        rises_X = ~high_m_E[cell_X]
        index_X = _crossing(m_E[cell_X], q_E[cell_X], rises_X, limit, grid.lambda_G)
        sign_X, label_X, right_X = np.where(rises_X, 1, -1), label_E[cell_X], true_E[cell_X]
        change = grid.totals(label_X, index_X, sign_X, n_labels)
        change_right = grid.totals(label_X, index_X, sign_X * right_X, n_labels)
        yield Counts(start_right_L + change_right, start_L + change, true_L, int(known_ML.sum()))


def _crossing(m_X: Array, q_X: Array, rises_X: Array, limit: float, lambda_G: Array) -> Array:
    """The first grid index (X,) at which the blend, as rounded, has crossed the limit; G if it never does."""
    slope_X = q_X - m_X
    index_X = np.searchsorted(lambda_G, (limit - m_X) / slope_X)

    def crossed(at_X: Array) -> Array:
        blend_X = m_X + lambda_G[np.clip(at_X, 0, len(lambda_G) - 1)] * slope_X
        return np.asarray((blend_X >= limit) == rises_X)

    # The closed form is rounded: step on until the blend itself agrees.
    while True:
        back = (index_X > 0) & crossed(index_X - 1)
        ahead = (index_X < len(lambda_G)) & ~crossed(index_X)
        if not (back.any() or ahead.any()):
            return np.asarray(index_X)
        index_X = index_X - back + (ahead & ~back)


def sweep_hits(
    votes: Ballot, target_R: Array, model_RC: Array, group_R: Array, grid: Grid
) -> Iterator[Array]:
    """Yields right predictions (G, groups) int64 of the blends for every temperature and then every k.

    Exact for lambdas up to 1 - 1e-8, and 1.

    Args:
        votes: The votes of the neighbours.
        target_R: The true class of each row, -1 to leave the row out.
        model_RC: The model's probabilities.
        group_R: The group of each row, such as its aspect.
        grid: The settings.
    """
    every_R, true_R = np.arange(len(model_RC)), np.maximum(target_R, 0)
    # Class 0 wins where all are equal, which they are without a vote.
    keep_RC = np.zeros(model_RC.shape, dtype=bool)
    keep_RC[every_R, true_R] = True
    keep_RC[every_R, model_RC.argmax(1)] = True
    keep_RC[:, 0] |= votes.known is not None
    cells = VoteCells(votes, grid.ks, keep_RC)
    lines = _Lines(cells, true_R, model_RC, grid.lambda_G)
    n_groups = int(group_R.max()) + 1
    for q_E in cells.probabilities(grid.temperatures):
        row_S, index_S, sign_S = lines.steps(q_E)
        counted_S = target_R[row_S] >= 0
        yield grid.totals(group_R[row_S[counted_S]], index_S[counted_S], sign_S[counted_S], n_groups)


class _Lines:
    """Compares the lines of each row's cells with the line of its true class."""

    def __init__(self, cells: VoteCells, true_R: Array, model_RC: Array, lambda_G: Array) -> None:
        self.row = cells.row
        self.lambda_G = lambda_G
        self.start_R = np.searchsorted(cells.row, np.arange(len(model_RC)))
        self.size_R = np.diff(self.start_R, append=len(cells.row))
        self.true_R = cells.index[np.arange(len(model_RC)) * model_RC.shape[1] + true_R]
        self.m_E = model_RC[cells.row, cells.column].astype(np.float64)
        self.lead_E = self.m_E - self.m_E[self.true_R][cells.row]
        # The true class need not beat itself.
        self.lead_E[self.true_R] = -1

    def steps(self, q_E: Array) -> tuple[Array, Array, Array]:
        """Rows that become right (+1) or wrong (-1) at a grid index: row, index, sign (S,)."""
        low_R, high_R, doubtful_R = self._interval(q_E)
        first_R = np.searchsorted(self.lambda_G, low_R - NEAR, side="left")
        sure_first_R = np.searchsorted(self.lambda_G, low_R + NEAR, side="right")
        sure_last_R = np.searchsorted(self.lambda_G, high_R - NEAR, side="left")
        last_R = np.searchsorted(self.lambda_G, high_R + NEAR, side="right")
        unsure_R = doubtful_R | (sure_first_R >= sure_last_R)
        sure_first_R = np.where(unsure_R, last_R, sure_first_R)
        sure_last_R = np.where(unsure_R, last_R, sure_last_R)
        sure = np.flatnonzero(sure_first_R < sure_last_R)
        before = _ranges(first_R, np.minimum(sure_first_R, last_R))
        after = _ranges(sure_last_R, last_R)
        row_P, index_P = (np.concatenate(pair) for pair in zip(before, after, strict=True))
        right = self._right(q_E, row_P, index_P)
        row_P, index_P = row_P[right], index_P[right]
        return (
            np.concatenate([sure, sure, row_P, row_P]),
            np.concatenate([sure_first_R[sure], sure_last_R[sure], index_P, index_P + 1]),
            np.repeat([1, -1, 1, -1], [len(sure), len(sure), len(row_P), len(row_P)]),
        )

    def _interval(self, q_E: Array) -> tuple[Array, Array, Array]:
        """The lambdas between which the true class is on top, to rounding; whether that is in doubt."""
        slope_E = q_E - self.m_E
        slope_E = slope_E[self.true_R][self.row] - slope_E
        flat_E = np.abs(slope_E) < FLAT
        crossing_E = self.lead_E / np.where(flat_E, 1, slope_E)
        rising_E = slope_E > 0
        low_E = np.where(rising_E & ~flat_E, crossing_E, -np.inf)
        low_E[flat_E & (self.lead_E >= 2 * FLAT)] = np.inf
        high_E = np.where(rising_E | flat_E, np.inf, crossing_E)
        doubtful_R = np.zeros(len(self.start_R), dtype=bool)
        doubtful_R[self.row[flat_E & (np.abs(self.lead_E) < 2 * FLAT)]] = True
        return np.maximum.reduceat(low_E, self.start_R), np.minimum.reduceat(high_E, self.start_R), doubtful_R

    def _right(self, q_E: Array, row_P: Array, index_P: Array) -> Array:
        """Whether the true class is the first of the highest (P,), by the blends themselves."""
        if not len(row_P):
            return np.zeros(0, dtype=bool)
        pair, within = _ranges(np.zeros_like(row_P), self.size_R[row_P])
        cell = self.start_R[row_P][pair] + within
        blend = self.m_E[cell] + self.lambda_G[index_P][pair] * (q_E[cell] - self.m_E[cell])
        begin = np.cumsum(self.size_R[row_P]) - self.size_R[row_P]
        highest = np.maximum.reduceat(blend, begin)[pair]
        first = np.minimum.reduceat(np.where(blend == highest, cell, len(self.row)), begin)
        return np.asarray(first == self.true_R[row_P])


def _ranges(first: Array, last: Array) -> tuple[Array, Array]:
    """All integers from first[i] to last[i] - 1: the i of each, and the integer."""
    length = np.maximum(last - first, 0)
    index = np.repeat(np.arange(len(length)), length)
    return index, np.arange(len(index)) - (np.cumsum(length) - length)[index] + first[index]
