"""Thresholds by label, drawn towards the one for all.

Few true entries say little about a label's own best threshold. So its counts are joined by those of n0 true
entries of the average label, where all labels are pooled and scaled by n0 / P:

    right_l(t) + n0 right(t) / P,   predicted_l(t) + n0 predicted(t) / P,   true_l + n0

n0 = infinity is the one threshold for all. n0 itself is chosen by cross-fitting: thresholds of the rows
outside each of `FOLDS` folds are scored on the fold's rows. The largest n0 is taken whose mean value is not
below the best by more than the standard error of their difference over the folds.

Shapes: N rows, L labels, P true entries, X candidates of all labels, label by label.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from mlcl.evaluation.global_threshold import (
    UNKNOWN,
    SortedScores,
    count_from,
    curve,
    global_threshold,
    values_of,
)
from mlcl.evaluation.metric import Metric
from mlcl.evaluation.predictions import Counts
from mlcl.evaluation.tasks import Array

FOLDS = 5
STRENGTHS = (math.inf, 100.0, 30.0, 10.0, 3.0, 1.0)
"""Values of n0 that are tried, the strongest first."""
STEPS = 50
"""Most steps of `LabelCandidates.best`; a handful is usual."""


def choose_label_thresholds(scores_NL: Array, true_NL: Array, metric: Metric) -> Array:
    """Thresholds (L,) float64 for scores (N, L) and truth (N, L) bool; row n is in the fold n mod `FOLDS`.

    A cell whose truth is not known has the score `UNKNOWN`.
    """
    cells, fold_N = SortedScores.of(scores_NL, true_NL), np.arange(len(scores_NL)) % FOLDS
    if min(true_NL[fold_N != fold].sum() for fold in range(FOLDS)) == 0:
        return np.full(scores_NL.shape[1], global_threshold(cells, metric))
    value_FS = np.zeros((FOLDS, len(STRENGTHS)))
    for fold in range(FOLDS):
        inside_N = fold_N == fold
        candidates = LabelCandidates.of(cells.rows(~inside_N), metric)
        scores, true = scores_NL[inside_N], true_NL[inside_N]
        cells_here = int(np.count_nonzero(scores > UNKNOWN))
        for at, strength in enumerate(STRENGTHS):
            predicted = scores >= candidates.best(strength)
            counts = Counts((predicted & true).sum(0), predicted.sum(0), true.sum(0), cells_here)
            value_FS[fold, at] = values_of(metric, counts)
    return LabelCandidates.of(cells, metric).best(_strongest(value_FS))


def _strongest(value_FS: Array) -> float:
    """The n0 that is taken, from the values (folds, strengths)."""
    best_F1 = value_FS[:, [value_FS.mean(0).argmax()]]
    loss_FS = best_F1 - value_FS
    error_S = loss_FS.std(axis=0, ddof=1) / np.sqrt(FOLDS)
    return STRENGTHS[int(np.argmax(loss_FS.mean(0) <= error_S))]


@dataclass(frozen=True)
class LabelCandidates:
    """The candidates (X,) of all labels, each label's own and the one for all, with their counts.

    `first` (L,) is where a label's begin; there stands the one for all, `common`. `pooled_right` and
    `pooled_predicted` are the counts of all labels at a candidate, divided by P.
    """

    metric: Metric
    common: float
    first: Array
    threshold: Array
    right: Array
    predicted: Array
    pooled_right: Array
    pooled_predicted: Array
    true: Array
    cells: int

    @classmethod
    def of(cls, cells: SortedScores, metric: Metric) -> LabelCandidates:
        """The candidates for cells of which any is true."""
        common = global_threshold(cells, metric)
        parts = [_label_curve(*column, common) for column in cells.columns()]
        threshold, right, predicted = (np.concatenate(part) for part in zip(*parts, strict=True))
        p = int(cells.true.sum())
        return cls(
            metric,
            common,
            np.cumsum([0, *(len(part[0]) for part in parts[:-1])]),
            threshold,
            right,
            predicted,
            count_from(cells.positives, threshold) / p,
            count_from(cells.score, threshold) / p,
            cells.true_counts,
            len(cells.score),
        )

    def best(self, strength: float) -> Array:
        """The thresholds (L,) for one n0; of a label's equally good ones the closest to the one for all.

        A metric of its labels' own values is best where each label's is. With a metric of pooled counts,
        each label takes what is best beside the others as they are, and all move at once, until none can
        gain. For a ratio of sums such as micro-F1 this rises at each step and ends at the best of all
        thresholds: no label can gain when each maximises numerator - F denominator, which is the condition
        of Dinkelbach (1967) for the optimum F.
        """
        if math.isinf(strength):
            return np.full(len(self.first), self.common)
        label_X = np.repeat(np.arange(len(self.first)), np.diff(self.first, append=len(self.threshold)))
        right_X = self.right + strength * self.pooled_right
        predicted_X = self.predicted + strength * self.pooled_predicted
        true_L = self.true + strength
        if not self.metric.pooled:
            value_X = self._values(right_X, predicted_X, true_L[label_X])
            return np.asarray(self.threshold[self._best(value_X, label_X)])
        at_L, best = self.first, -np.inf
        for _ in range(STEPS):
            right, predicted, true = right_X[at_L].sum(), predicted_X[at_L].sum(), true_L.sum()
            value = float(self._values(right, predicted, true))
            if value <= best:
                break
            best, kept_L = value, at_L
            others_right_X = (right - right_X[at_L])[label_X]
            others_predicted_X = (predicted - predicted_X[at_L])[label_X]
            value_X = self._values(right_X + others_right_X, predicted_X + others_predicted_X, true)
            at_L = self._best(value_X, label_X)
        return np.asarray(self.threshold[kept_L])

    def _values(self, right: Array, predicted: Array, true: Array) -> Array:
        """The metric of one label with each of these counts."""
        counts = Counts(
            np.expand_dims(right, -1), np.expand_dims(predicted, -1), np.expand_dims(true, -1), self.cells
        )
        return values_of(self.metric, counts)

    def _best(self, value_X: Array, label_X: Array) -> Array:
        """Each label's best candidate (L,); of equal ones the closest to `common`, then the first."""
        equal_X = value_X == np.maximum.reduceat(value_X, self.first)[label_X]
        distance_X = np.where(equal_X, np.abs(self.threshold - self.common), np.inf)
        closest_X = distance_X == np.minimum.reduceat(distance_X, self.first)[label_X]
        place_X = np.where(closest_X, np.arange(len(value_X)), len(value_X))
        return np.asarray(np.minimum.reduceat(place_X, self.first))


def _label_curve(scores_N: Array, positives_P: Array, common: float) -> tuple[Array, Array, Array]:
    """Thresholds, right and predicted of a label's candidates."""
    found = curve(scores_N, positives_P)
    return (
        np.append(common, found.threshold),
        np.append(count_from(positives_P, np.array(common)), found.right),
        np.append(count_from(scores_N, np.array(common)), found.predicted),
    )
