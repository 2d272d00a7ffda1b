"""Thresholds on probabilities that are best for a metric: one for all labels, or one a label.

Candidates are the thresholds at which one more true entry is predicted, found by sorting, and the one above
all probabilities: between two of them only wrong entries are added, so the best of them is the best of all.

Few true entries say little about a label's own best threshold. So thresholds by label are drawn towards the
one for all: a label's counts are joined by those of n0 true entries of the average label, where all labels
are pooled and scaled by n0 / P:

    right_l(t) + n0 right(t) / P,   predicted_l(t) + n0 predicted(t) / P,   true_l + n0

n0 = infinity is the one threshold for all. n0 itself is chosen by cross-fitting: thresholds of the rows
outside each of `FOLDS` folds are scored on the fold's rows. The largest n0 is used whose mean value is not
below the best by more than the standard error of their difference over the folds.

Shapes: N rows, L labels, E entries (cells of N x L), P true entries, T candidates, X candidates of all
labels, label by label.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np

from mlcl.evaluation.metric import Metric
from mlcl.evaluation.predictions import Counts
from mlcl.evaluation.tasks import Array

HALF = 0.5
UNKNOWN = -np.inf
"""The score of a cell whose truth is not known: no threshold predicts it, and it is not counted."""
CHUNK = 4_000_000
"""Counts (candidates x labels) that are held at once."""
FOLDS = 5
STRENGTHS = (math.inf, 100.0, 30.0, 10.0, 3.0, 1.0)
"""Values of n0 that are tried, the strongest first."""
STEPS = 50
"""Most steps of `LabelCandidates.best`; a handful is usual."""


@dataclass(frozen=True)
class SortedScores:
    """Scores (E,) float64 of cells, ascending, with their `row` and `label` (E,) int32 and truth (E,)."""

    score: Array
    row: Array
    label: Array
    true: Array
    n_labels: int

    @classmethod
    def of(cls, scores_NL: Array, true_NL: Array) -> Self:
        """The known cells of scores (N, L) and truth (N, L) bool."""
        order_E = np.argsort(scores_NL, axis=None)[np.count_nonzero(scores_NL == UNKNOWN) :]
        row_E, label_E = (part.astype(np.int32) for part in np.divmod(order_E, scores_NL.shape[1]))
        score_E, true_E = scores_NL.reshape(-1)[order_E], true_NL.reshape(-1)[order_E]
        return cls(score_E, row_E, label_E, true_E, scores_NL.shape[1])

    def rows(self, kept_N: Array) -> Self:
        """The cells of the rows that a mask (N,) keeps."""
        kept_E = kept_N[self.row]
        score, row, label, true = (part[kept_E] for part in (self.score, self.row, self.label, self.true))
        return type(self)(score, row, label, true, self.n_labels)

    @property
    def positives(self) -> Array:
        """The true entries' scores (P,), ascending."""
        return self.score[self.true]

    @property
    def true_counts(self) -> Array:
        """The number of true entries of each label (L,)."""
        return np.bincount(self.label[self.true], minlength=self.n_labels)

    def columns(self) -> list[tuple[Array, Array]]:
        """Each label's scores, of up to N rows, and its true entries' scores, both ascending."""
        order_E = np.argsort(self.label, kind="stable")
        ends = np.bincount(self.label, minlength=self.n_labels).cumsum()[:-1]
        scores, true = (np.split(part[order_E], ends) for part in (self.score, self.true))
        return [(score, score[own]) for score, own in zip(scores, true, strict=True)]


def global_threshold(cells: SortedScores, metric: Metric) -> float:
    """The one threshold with the best value of a metric of counts; one half without a true entry."""
    if not cells.true.any():
        return HALF
    threshold_T, predicted_T, right_T = _candidates(cells.score, cells.positives)
    if metric.pooled:
        total = np.array([cells.true.sum()])
        counts = Counts(right_T[:, None], predicted_T[:, None], total, len(cells.score))
        return _best_threshold(signed_values(metric, counts), threshold_T)
    columns, positives = zip(*cells.columns(), strict=True)
    step = max(1, CHUNK // cells.n_labels)
    values = []
    for first in range(0, len(threshold_T), step):
        some_T = threshold_T[first : first + step]
        right_TL, predicted_TL = _from_each(positives, some_T), _from_each(columns, some_T)
        counts = Counts(right_TL, predicted_TL, cells.true_counts, len(cells.score))
        values.append(signed_values(metric, counts))
    return _best_threshold(np.concatenate(values), threshold_T)


def label_thresholds(scores_NL: Array, true_NL: Array, metric: Metric) -> Array:
    """Thresholds (L,) float64 for scores (N, L) and truth (N, L) bool, by the rule at the top of this file.

    Row n is in the fold n mod `FOLDS`. A cell whose truth is not known has the score `UNKNOWN`.
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
        for index, strength in enumerate(STRENGTHS):
            predicted = scores >= candidates.best(strength)
            counts = Counts((predicted & true).sum(0), predicted.sum(0), true.sum(0), cells_here)
            value_FS[fold, index] = signed_values(metric, counts)
    return LabelCandidates.of(cells, metric).best(_choose_strength(value_FS))


def signed_values(metric: Metric, counts: Counts) -> Array:
    """The metric of counts, negated where less is better."""
    assert metric.counts is not None
    value = np.asarray(metric.counts(counts))
    return value if metric.mode == "max" else -value


@dataclass(frozen=True)
class LabelCandidates:
    """The candidates (X,) of all labels, each label's own and the one for all, with their counts.

    `first` (L,) is the index of each label's first candidate, which is the one for all, `common`.
    `pooled_right` and `pooled_predicted` are the counts of all labels at a candidate, divided by P.
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
        parts = [_label_candidates(*column, common) for column in cells.columns()]
        threshold, right, predicted = (np.concatenate(part) for part in zip(*parts, strict=True))
        p = int(cells.true.sum())
        return cls(
            metric,
            common,
            np.cumsum([0, *(len(part[0]) for part in parts[:-1])]),
            threshold,
            right,
            predicted,
            _count_from(cells.positives, threshold) / p,
            _count_from(cells.score, threshold) / p,
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
        index_L, best = self.first, -np.inf
        for _ in range(STEPS):
            right, predicted, true = right_X[index_L].sum(), predicted_X[index_L].sum(), true_L.sum()
            value = float(self._values(right, predicted, true))
            if value <= best:
                break
            best, kept_L = value, index_L
            others_right_X = (right - right_X[index_L])[label_X]
            others_predicted_X = (predicted - predicted_X[index_L])[label_X]
            value_X = self._values(right_X + others_right_X, predicted_X + others_predicted_X, true)
            index_L = self._best(value_X, label_X)
        return np.asarray(self.threshold[kept_L])

    def _values(self, right: Array, predicted: Array, true: Array) -> Array:
        """The metric of one label with each of these counts."""
        right, predicted, true = (np.expand_dims(each, -1) for each in (right, predicted, true))
        return signed_values(self.metric, Counts(right, predicted, true, self.cells))

    def _best(self, value_X: Array, label_X: Array) -> Array:
        """Each label's best candidate (L,); of equal ones the closest to `common`, then the first."""
        equal_X = value_X == np.maximum.reduceat(value_X, self.first)[label_X]
        distance_X = np.where(equal_X, np.abs(self.threshold - self.common), np.inf)
        closest_X = distance_X == np.minimum.reduceat(distance_X, self.first)[label_X]
        index_X = np.where(closest_X, np.arange(len(value_X)), len(value_X))
        return np.asarray(np.minimum.reduceat(index_X, self.first))


def _choose_strength(value_FS: Array) -> float:
    """The n0 that is used, from the values (folds, strengths)."""
    best_F1 = value_FS[:, [value_FS.mean(0).argmax()]]
    loss_FS = best_F1 - value_FS
    error_S = loss_FS.std(axis=0, ddof=1) / np.sqrt(FOLDS)
    return STRENGTHS[int(np.argmax(loss_FS.mean(0) <= error_S))]


def _candidates(scores_E: Array, positives_P: Array) -> tuple[Array, Array, Array]:
    """The candidates (T,), ascending, with the numbers of predicted and right entries at each.

    `positives_P` are the true entries' scores; both are ascending. Infinite scores are predicted at each
    candidate; the last candidate predicts no others.
    """
    value_T = np.unique(positives_P[np.isfinite(positives_P)])
    below_T = np.searchsorted(scores_E, value_T, side="left")
    lower_T = np.where(below_T > 0, scores_E[np.maximum(below_T - 1, 0)], 0.0)
    finite = int(np.searchsorted(scores_E, np.inf, side="left"))
    highest = float(scores_E[finite - 1]) if finite else 0.0
    # Between two scores, and above the lower one also where rounding leaves no room.
    middle_T = lower_T + (value_T - lower_T) / 2
    last = highest + (1 - highest) / 2
    right_T = len(positives_P) - np.searchsorted(positives_P, value_T, side="left")
    return (
        np.append(np.where(middle_T > lower_T, middle_T, value_T), last if last > highest else 2.0),
        np.append(len(scores_E) - below_T, len(scores_E) - finite),
        np.append(right_T, int(np.isinf(positives_P).sum())),
    )


def _label_candidates(scores_N: Array, positives_P: Array, common: float) -> tuple[Array, Array, Array]:
    """Thresholds, right and predicted of a label's candidates, `common` first."""
    threshold_T, predicted_T, right_T = _candidates(scores_N, positives_P)
    return (
        np.append(common, threshold_T),
        np.append(_count_from(positives_P, np.array(common)), right_T),
        np.append(_count_from(scores_N, np.array(common)), predicted_T),
    )


def _best_threshold(value_T: Array, threshold_T: Array) -> float:
    """The threshold with the highest value; of equal ones the closest to one half, then the lower."""
    best_T = threshold_T[value_T == value_T.max()]
    return float(best_T[np.abs(best_T - HALF).argmin()])


def _from_each(columns_L: Sequence[Array], threshold_T: Array) -> Array:
    """The number of values of each ascending column from each threshold on (T, L)."""
    return np.stack([_count_from(column, threshold_T) for column in columns_L], axis=1)


def _count_from(scores_E: Array, threshold_T: Array) -> Array:
    """The number of ascending scores from each threshold on (T,)."""
    return len(scores_E) - np.searchsorted(scores_E, threshold_T, side="left")
