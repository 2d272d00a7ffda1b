"""One threshold for all labels, and the counts of every threshold that can be the best one.

Candidates are the thresholds at which one more true entry is predicted, found by sorting, and the one above
all probabilities: between two of them only wrong entries come in, so the best of them is the best of all.

Shapes: N rows, L labels, E entries (cells of N x L), P true entries, T candidates.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mlcl.evaluation.metric import Metric
from mlcl.evaluation.predictions import Counts
from mlcl.evaluation.tasks import Array

HALF = 0.5
CHUNK = 4_000_000
"""Counts (candidates x labels) that are held at once."""


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


def global_threshold(scores_NL: Array, true_NL: Array, metric: Metric) -> float:
    """The one threshold with the best value."""
    if not true_NL.any():
        return HALF
    found = curve(np.sort(scores_NL, axis=None), np.sort(scores_NL[true_NL]))
    if metric.pooled:
        total = np.array([true_NL.sum()])
        counts = Counts(found.right[:, None], found.predicted[:, None], total, scores_NL.size)
        return best_threshold(values_of(metric, counts), found.threshold)
    columns_L = [np.sort(column) for column in scores_NL.T]
    positives_L = [np.sort(column[true]) for column, true in zip(scores_NL.T, true_NL.T, strict=True)]
    step = max(1, CHUNK // len(columns_L))
    values = []
    for first in range(0, len(found.threshold), step):
        some_T = found.threshold[first : first + step]
        right, predicted = _from(positives_L, some_T), _from(columns_L, some_T)
        values.append(values_of(metric, Counts(right, predicted, true_NL.sum(0), scores_NL.size)))
    return best_threshold(np.concatenate(values), found.threshold)


def _from(columns_L: list[Array], threshold_T: Array) -> Array:
    """How many values of each ascending column are at least each threshold (T, L)."""
    below = [len(column) - np.searchsorted(column, threshold_T, side="left") for column in columns_L]
    return np.stack(below, axis=1)
