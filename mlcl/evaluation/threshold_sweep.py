"""Counts of thresholded labels for every lambda at once.

A cell's blend m + lambda (q - m) is monotone in lambda, so that it crosses the threshold at most once: at
lambda* = (t - m) / (q - m). All counts follow from where on the grid each cell crosses.
Shapes: M queries, L labels, E cells, X crossing cells, G lambdas.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from mlcl.evaluation.knn import Ballot
from mlcl.evaluation.predictions import Counts
from mlcl.evaluation.tasks import Array, array
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
    slots = make_vote_cells(votes, grid.ks, model_ML >= limit)
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
            yield Counts(start_right_L + change_right, start_L + change, true_L, model_ML.size)


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
