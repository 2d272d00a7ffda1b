"""One threshold for all labels, and the counts of every threshold that can be the best one.

Candidates are the thresholds at which one more true entry is predicted, found by sorting, and the one above
all probabilities: between two of them only wrong entries come in, so the best of them is the best of all.

Shapes: N rows, L labels, E entries (cells of N x L), P true entries, T candidates.
"""

from __future__ import annotations

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
        """How many true entries each label has (L,)."""
        return np.bincount(self.label[self.true], minlength=self.n_labels)

    def columns(self) -> list[tuple[Array, Array]]:
        """Each label's scores, of up to N rows, and those of its true entries, ascending."""
        order_E = np.argsort(self.label, kind="stable")
        ends = np.bincount(self.label, minlength=self.n_labels).cumsum()[:-1]
        scores, true = (np.split(part[order_E], ends) for part in (self.score, self.true))
        return [(score, score[own]) for score, own in zip(scores, true, strict=True)]


@dataclass(frozen=True)
class Curve:
    """What each of T thresholds, ascending, predicts and gets right: int64 (T,)."""

    threshold: Array
    predicted: Array
    right: Array


def curve(scores_E: Array, positives_P: Array) -> Curve:
    """The candidates for scores of which `positives_P` are those of the true entries; both ascending.

    Infinite scores are predicted at each of them. The last candidate predicts no others.
    """
    value_T = np.unique(positives_P[np.isfinite(positives_P)])
    below_T = np.searchsorted(scores_E, value_T, side="left")
    lower_T = np.where(below_T > 0, scores_E[np.maximum(below_T - 1, 0)], 0.0)
    finite = int(np.searchsorted(scores_E, np.inf, side="left"))
    highest = scores_E[finite - 1] if finite else 0.0
    threshold = np.append(_middle(lower_T, value_T), _above(float(highest)))
    right_T = len(positives_P) - np.searchsorted(positives_P, value_T, side="left")
    always = int(np.isinf(positives_P).sum())
    return Curve(
        threshold,
        np.append(len(scores_E) - below_T, len(scores_E) - finite),
        np.append(right_T, always),
    )


def _middle(low: Array, high: Array) -> Array:
    """Between the two, and above the lower one also where rounding leaves no room."""
    middle = low + (high - low) / 2
    return np.where(middle > low, middle, high)


def _above(highest: float) -> float:
    """A threshold above a probability: between it and 1, or 2."""
    middle = highest + (1 - highest) / 2
    return middle if middle > highest else 2.0


def values_of(metric: Metric, counts: Counts) -> Array:
    """The metric of counts, with the sign that makes more better."""
    assert metric.counts is not None
    value = np.asarray(metric.counts(counts))
    return value if metric.mode == "max" else -value


def best_threshold(value_T: Array, threshold_T: Array) -> float:
    """The threshold with the highest value; of equal ones the closest to one half, then the lower."""
    best_T = threshold_T[value_T == value_T.max()]
    return float(best_T[np.abs(best_T - HALF).argmin()])


def global_threshold(cells: SortedScores, metric: Metric) -> float:
    """The one threshold with the best value."""
    if not cells.true.any():
        return HALF
    found = curve(cells.score, cells.positives)
    if metric.pooled:
        total = np.array([cells.true.sum()])
        counts = Counts(found.right[:, None], found.predicted[:, None], total, len(cells.score))
        return best_threshold(values_of(metric, counts), found.threshold)
    columns, positives = zip(*cells.columns(), strict=True)
    step = max(1, CHUNK // cells.n_labels)
    values = []
    for first in range(0, len(found.threshold), step):
        some_T = found.threshold[first : first + step]
        counts = Counts(_from(positives, some_T), _from(columns, some_T), cells.true_counts, len(cells.score))
        values.append(values_of(metric, counts))
    return best_threshold(np.concatenate(values), found.threshold)


def _from(columns_L: Sequence[Array], threshold_T: Array) -> Array:
    """How many values of each ascending column are at least each threshold (T, L)."""
    return np.stack([count_from(column, threshold_T) for column in columns_L], axis=1)


def count_from(scores_E: Array, threshold_T: Array) -> Array:
    """How many ascending scores are at least each threshold (T,)."""
    return len(scores_E) - np.searchsorted(scores_E, threshold_T, side="left")
