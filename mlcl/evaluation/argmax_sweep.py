"""Right top-1 predictions for every lambda at once.

A class's blend m + lambda (q - m) is a line in lambda. The true class y is on top where it is above every
other line: between the largest lambda at which it comes to pass one and the smallest at which one passes it.
Only the classes of neighbours, y, and the model's own choice can be on top.
Shapes: R vote rows, C classes, E cells, G lambdas, P rows at one doubtful lambda each.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from mlcl.evaluation.knn import Ballot
from mlcl.evaluation.tasks import Array
from mlcl.evaluation.vote_cells import Grid, VoteCells, make_vote_cells

FLAT = 1e-6
"""Lines whose slopes differ by less are compared at every lambda, as rounding decides between them."""
NEAR = 1e-9
"""Grid lambdas this close to a crossing are evaluated; beyond, rounding cannot change which is higher."""


def argmax_sweep(
    votes: Ballot,
    target_R: Array,
    model_RC: Array,
    group_R: Array,
    grid: Grid,
) -> Iterator[Array]:
    """Right predictions (G, groups) int64 of `blend(...)`, exactly, for every temperature and then every k.

    `target_R` is the true class, -1 to leave the row out; `group_R` the row's group, such as its aspect.
    Exact for lambdas up to 1 - 1e-8, and 1.
    """
    slots = make_vote_cells(votes, grid.ks, _kept(votes, target_R, model_RC))
    sweep = _Sweep(slots, np.maximum(target_R, 0), model_RC, grid.lambda_G)
    n_groups = int(group_R.max()) + 1
    for temperature in grid.temperatures:
        for q_E in slots.shares(temperature):
            row_S, at_S, sign_S = sweep.steps(q_E)
            counted_S = target_R[row_S] >= 0
            yield grid.totals(group_R[row_S[counted_S]], at_S[counted_S], sign_S[counted_S], n_groups)


def _kept(votes: Ballot, target_R: Array, model_RC: Array) -> Array:
    """Cells besides the neighbours': the true class and the model's; class 0 wins where all are equal."""
    kept_RC = np.zeros(model_RC.shape, dtype=bool)
    every_R = np.arange(len(model_RC))
    kept_RC[every_R, np.maximum(target_R, 0)] = True
    kept_RC[every_R, model_RC.argmax(1)] = True
    kept_RC[:, 0] |= votes.known is not None
    return kept_RC


class _Sweep:
    """What stays the same from one setting to the next, and the comparison of lines."""

    def __init__(self, slots: VoteCells, target_R: Array, model_RC: Array, lambda_G: Array) -> None:
        self.row = slots.row
        self.lambda_G = lambda_G
        self.start_R = np.searchsorted(slots.row, np.arange(len(model_RC)))
        self.size_R = np.diff(self.start_R, append=len(slots.row))
        self.true_R = slots.at[np.arange(len(model_RC)) * model_RC.shape[1] + target_R]
        self.m_E = model_RC[slots.row, slots.column].astype(np.float64)
        self.lead_E = self.m_E - self.m_E[self.true_R][slots.row]
        # The true class need not beat itself.
        self.lead_E[self.true_R] = -1

    def steps(self, q_E: Array) -> tuple[Array, Array, Array]:
        """Rows that become right (+1) or wrong (-1) at a grid index: row, index, sign."""
        low_R, high_R, doubtful_R = self._interval(q_E)
        first_R = np.searchsorted(self.lambda_G, low_R - NEAR, side="left")
        sure_first_R = np.searchsorted(self.lambda_G, low_R + NEAR, side="right")
        sure_last_R = np.searchsorted(self.lambda_G, high_R - NEAR, side="left")
        last_R = np.searchsorted(self.lambda_G, high_R + NEAR, side="right")
        unsure_R = doubtful_R | (sure_first_R >= sure_last_R)
        sure_first_R = np.where(unsure_R, last_R, sure_first_R)
        sure_last_R = np.where(unsure_R, last_R, sure_last_R)
        sure = np.flatnonzero(sure_first_R < sure_last_R)
        row_P, at_P = _ranges(first_R, np.minimum(sure_first_R, last_R))
        row_Q, at_Q = _ranges(sure_last_R, last_R)
        row_P, at_P = np.concatenate([row_P, row_Q]), np.concatenate([at_P, at_Q])
        right = self._right(q_E, row_P, at_P)
        row_P, at_P = row_P[right], at_P[right]
        return (
            np.concatenate([sure, sure, row_P, row_P]),
            np.concatenate([sure_first_R[sure], sure_last_R[sure], at_P, at_P + 1]),
            np.repeat([1, -1, 1, -1], [len(sure), len(sure), len(row_P), len(row_P)]),
        )

    def _interval(self, q_E: Array) -> tuple[Array, Array, Array]:
        """Where the true class is on top, to rounding, and for which rows that is in doubt throughout."""
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

    def _right(self, q_E: Array, row_P: Array, at_P: Array) -> Array:
        """Whether the true class is the first of the highest (P,), by the blends themselves."""
        if not len(row_P):
            return np.zeros(0, dtype=bool)
        pair, within = _ranges(np.zeros_like(row_P), self.size_R[row_P])
        cell = self.start_R[row_P][pair] + within
        blend = self.m_E[cell] + self.lambda_G[at_P][pair] * (q_E[cell] - self.m_E[cell])
        begin = np.cumsum(self.size_R[row_P]) - self.size_R[row_P]
        highest = np.maximum.reduceat(blend, begin)[pair]
        first = np.minimum.reduceat(np.where(blend == highest, cell, len(self.row)), begin)
        return np.asarray(first == self.true_R[row_P])


def _ranges(first: Array, last: Array) -> tuple[Array, Array]:
    """For every i the integers from first[i] to last[i] - 1: which i, and the integer."""
    length = np.maximum(last - first, 0)
    which = np.repeat(np.arange(len(length)), length)
    return which, np.arange(len(which)) - (np.cumsum(length) - length)[which] + first[which]
