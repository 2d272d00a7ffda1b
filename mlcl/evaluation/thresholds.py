"""Finds the thresholds on probabilities that are best for a metric: one for all labels, or one per label.

Candidates are the thresholds at which one more true entry is predicted, found by sorting, and one above all
probabilities. Between two neighbouring candidates only wrong entries are added, so the best candidate is the
best of all thresholds.

A label with few true entries has an unreliable best threshold. So the thresholds of single labels are shrunk
towards the common threshold, the best one for all labels: the counts of n0 true entries of an average label
are added to a label's counts. The added counts are those of all labels together, scaled by n0 / P:

    right_l(t) + n0 right(t) / P,   predicted_l(t) + n0 predicted(t) / P,   true_l + n0

n0 = infinity gives the common threshold. n0 itself is chosen by cross-validation: for each of `FOLDS` folds,
thresholds are found on the rows outside of the fold and scored on the rows in it. The largest n0 is used
whose mean value over folds is not below the best mean by more than the standard error of their difference.

Shapes: N rows, L labels, E entries (cells of N x L), P true entries, T candidates, X candidates of all
labels, one label after the other.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from typing_extensions import Self

from mlcl.evaluation.metric import Metric
from mlcl.evaluation.predictions import Counts
from mlcl.evaluation.tasks import Array

HALF = 0.5
UNKNOWN = -np.inf
"""The score of an entry whose truth is unknown: no threshold predicts it, and it is not counted."""
CHUNK = 4_000_000
"""The largest number of counts (candidates x labels) that are in memory at once."""
FOLDS = 5
STRENGTHS = (math.inf, 100.0, 30.0, 10.0, 3.0, 1.0)
"""The values of n0 that are tried, in descending order."""
STEPS = 50
"""The largest number of steps of `LabelCandidates.best`; a handful is usual."""


@dataclass(frozen=True)
class SortedScores:
    """The known entries of a prediction, sorted by score.

    `score` (E,) float64 ascends; `row` and `label` (E,) int32 and `true` (E,) bool describe the entry of each
    score.
    """

    score: Array
    row: Array
    label: Array
    true: Array
    n_labels: int

    @classmethod
    def of(cls, scores_NL: Array, true_NL: Array) -> Self:
        """Sorts the known entries, given scores (N, L) and truth (N, L) bool."""
        order_E = np.argsort(scores_NL, axis=None)[np.count_nonzero(scores_NL == UNKNOWN) :]
        row_E, label_E = (part.astype(np.int32) for part in np.divmod(order_E, scores_NL.shape[1]))
        score_E, true_E = scores_NL.reshape(-1)[order_E], true_NL.reshape(-1)[order_E]
        return cls(score_E, row_E, label_E, true_E, scores_NL.shape[1])

    def rows(self, kept_N: Array) -> Self:
        """Returns the entries of the rows that a mask (N,) selects."""
        kept_E = kept_N[self.row]
        score, row, label, true = (part[kept_E] for part in (self.score, self.row, self.label, self.true))
        return type(self)(score, row, label, true, self.n_labels)

    @property
    def positives(self) -> Array:
        """The scores of the true entries (P,), ascending."""
        return self.score[self.true]

    @property
    def true_counts(self) -> Array:
        """The number of true entries of each label (L,)."""
        return np.bincount(self.label[self.true], minlength=self.n_labels)

    def columns(self) -> list[tuple[Array, Array]]:
        """Returns the scores of each label's entries and of its true entries, both ascending."""
        order_E = np.argsort(self.label, kind="stable")
        ends = np.bincount(self.label, minlength=self.n_labels).cumsum()[:-1]
        scores, true = (np.split(part[order_E], ends) for part in (self.score, self.true))
        return [(score, score[is_true]) for score, is_true in zip(scores, true, strict=True)]


def global_threshold(cells: SortedScores, metric: Metric) -> float:
    """Returns the common threshold of all labels that is best for the metric; 0.5 without a true entry."""
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
        chunk_T = threshold_T[first : first + step]
        right_TL, predicted_TL = _count_each_column(positives, chunk_T), _count_each_column(columns, chunk_T)
        counts = Counts(right_TL, predicted_TL, cells.true_counts, len(cells.score))
        values.append(signed_values(metric, counts))
    return _best_threshold(np.concatenate(values), threshold_T)


def label_thresholds(scores_NL: Array, true_NL: Array, metric: Metric) -> Array:
    """Returns a threshold for each label (L,) float64, from scores (N, L) and truth (N, L) bool.

    The method is explained at the top of this file; row n is in the fold n mod `FOLDS`. An entry whose truth
    is unknown has the score `UNKNOWN`. If the rows outside of a fold have no true entry, all labels get the
    common threshold.
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
            predicted = scores >= candidates.best_thresholds(strength)
            counts = Counts((predicted & true).sum(0), predicted.sum(0), true.sum(0), cells_here)
            value_FS[fold, index] = signed_values(metric, counts)
    loss_FS = value_FS[:, [value_FS.mean(0).argmax()]] - value_FS
    error_S = loss_FS.std(axis=0, ddof=1) / np.sqrt(FOLDS)
    strength = STRENGTHS[int(np.argmax(loss_FS.mean(0) <= error_S))]
    return LabelCandidates.of(cells, metric).best_thresholds(strength)


def signed_values(metric: Metric, counts: Counts) -> Array:
    """Returns the metric of counts, negated if less is better."""
    assert metric.counts is not None
    value = np.asarray(metric.counts(counts))
    return value if metric.mode == "max" else -value


@dataclass(frozen=True)
class LabelCandidates:
    """The candidate thresholds (X,) of all labels, with their counts; each label also has the common one.

    `common` is the common threshold. `first` (L,) is the index of each label's first candidate, which is the
    common threshold. `right` and `predicted` (X,) are the label's own counts at each candidate;
    `pooled_right` and `pooled_predicted` (X,) are the counts of all labels there, divided by P. `true` (L,)
    is the number of true entries of each label, `cells` the number of all known entries.
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
        """Returns the candidates for entries of which at least one is true."""
        common = global_threshold(cells, metric)
        parts = [_label_candidates(*column, common) for column in cells.columns()]
        threshold, right, predicted = (np.concatenate(part) for part in zip(*parts, strict=True))
        first = np.cumsum([0, *(len(part[0]) for part in parts[:-1])])
        p, true_L, n = int(cells.true.sum()), cells.true_counts, len(cells.score)
        pooled = [_count_at_least(scores, threshold) / p for scores in (cells.positives, cells.score)]
        return cls(metric, common, first, threshold, right, predicted, pooled[0], pooled[1], true_L, n)

    def best_thresholds(self, strength: float) -> Array:
        """Returns the best thresholds (L,) for one n0; of equally good ones the closest to `common`.

        If the metric is a mean of the labels' own values, each label takes the threshold that is best for its
        own value. If the metric is computed from pooled counts, each label takes the threshold that is best
        given the current thresholds of the other labels, and all labels change at once, until the metric no
        longer rises. For a ratio of sums such as micro-F1 the metric rises at each step and ends at the
        optimum over all thresholds: no label can gain when each maximises numerator - F denominator, which is
        the condition of Dinkelbach (1967) for the optimum F.
        """
        if math.isinf(strength):
            return np.full(len(self.first), self.common)
        label_X = np.repeat(np.arange(len(self.first)), np.diff(self.first, append=len(self.threshold)))
        right_X = self.right + strength * self.pooled_right
        predicted_X = self.predicted + strength * self.pooled_predicted
        true_L = self.true + strength
        if not self.metric.pooled:
            value_X = self._label_values(right_X, predicted_X, true_L[label_X])
            return np.asarray(self.threshold[self._best_candidates(value_X, label_X)])
        index_L, best_value = self.first, -np.inf
        for _ in range(STEPS):
            right, predicted, true = right_X[index_L].sum(), predicted_X[index_L].sum(), true_L.sum()
            value = float(self._label_values(right, predicted, true))
            if value <= best_value:
                break
            best_value, best_index_L = value, index_L
            others_right_X = (right - right_X[index_L])[label_X]
            others_predicted_X = (predicted - predicted_X[index_L])[label_X]
            value_X = self._label_values(right_X + others_right_X, predicted_X + others_predicted_X, true)
            index_L = self._best_candidates(value_X, label_X)
        return np.asarray(self.threshold[best_index_L])

    def _label_values(self, right: Array, predicted: Array, true: Array) -> Array:
        """Returns the metric of a single label that has these counts, for each entry of the arrays."""
        right, predicted, true = (np.expand_dims(count, -1) for count in (right, predicted, true))
        return signed_values(self.metric, Counts(right, predicted, true, self.cells))

    def _best_candidates(self, value_X: Array, label_X: Array) -> Array:
        """Returns the index of each label's best candidate (L,).

        Of equally good candidates the closest to `common` wins, then the first.
        """
        equal_X = value_X == np.maximum.reduceat(value_X, self.first)[label_X]
        distance_X = np.where(equal_X, np.abs(self.threshold - self.common), np.inf)
        closest_X = distance_X == np.minimum.reduceat(distance_X, self.first)[label_X]
        index_X = np.where(closest_X, np.arange(len(value_X)), len(value_X))
        return np.asarray(np.minimum.reduceat(index_X, self.first))


def _candidates(scores_E: Array, positives_P: Array) -> tuple[Array, Array, Array]:
    """Returns the candidates (T,), ascending, and the numbers of predicted and of right entries at each.

    `scores_E` are the scores of all entries and `positives_P` those of the true entries, both ascending.
    Entries with an infinite score are predicted at every candidate; the last candidate predicts only them.
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
    """Returns a label's candidates, `common` first, with the numbers of right and predicted entries."""
    threshold_T, predicted_T, right_T = _candidates(scores_N, positives_P)
    return (
        np.append(common, threshold_T),
        np.append(_count_at_least(positives_P, np.array(common)), right_T),
        np.append(_count_at_least(scores_N, np.array(common)), predicted_T),
    )


def _best_threshold(value_T: Array, threshold_T: Array) -> float:
    """Returns the threshold with the highest value; of equal ones the closest to one half, then the lower."""
    best_T = threshold_T[value_T == value_T.max()]
    return float(best_T[np.abs(best_T - HALF).argmin()])


def _count_each_column(columns_L: Sequence[Array], threshold_T: Array) -> Array:
    """Returns, for each ascending column, how many of its values are at or above each threshold (T, L)."""
    return np.stack([_count_at_least(column, threshold_T) for column in columns_L], axis=1)


def _count_at_least(scores_E: Array, threshold_T: Array) -> Array:
    """Returns how many of the ascending scores are at or above each threshold (T,)."""
    return len(scores_E) - np.searchsorted(scores_E, threshold_T, side="left")
