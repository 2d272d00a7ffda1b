"""Predictions together with their targets; values that several metrics need are computed once.

Average precision and the area under the ROC curve are computed for many labels at once. scikit-learn takes
one label per call; here a label costs one sort of its column, and all other work is on the true entries
alone.

Shapes: N rows, C classes, L labels, P true entries: the pairs (`row_P`, `label_P`), in any order. Counts may
have leading axes (...), such as one for the settings of a sweep.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch

from mlcl.evaluation.tasks import NO_FACTS, Array, LabelFacts

CHUNK = 256
"""The number of labels whose columns are sorted at once."""


@dataclass(frozen=True)
class LabelRanking:
    """The average precision and the AUC of each label (L,), as float64.

    They are NaN for a label without a positive row, and `auc` also for a label without a negative row.
    """

    average_precision: Array
    auc: Array


def rank_labels(
    scores_NL: Array, row_P: Array, label_P: Array, known_NL: Array | None = None
) -> LabelRanking:
    """Returns the average precision and AUC of every label; equal scores share a rank, as in scikit-learn.

    A label ranks only the rows in which it is known according to `known_NL`; None if all are known.
    """
    n_rows, n_labels = scores_NL.shape
    count_L = np.full(n_labels, n_rows) if known_NL is None else known_NL.sum(0)
    order_P = np.argsort(label_P, kind="stable")
    bounds = np.searchsorted(label_P[order_P], np.arange(n_labels + 1))
    positives_P = scores_NL[row_P[order_P], label_P[order_P]]
    precision_L, auc_L = np.full(n_labels, np.nan), np.full(n_labels, np.nan)
    for first in range(0, n_labels, CHUNK):
        columns = scores_NL[:, first : first + CHUNK].T.copy()
        if known_NL is not None:
            columns[~known_NL[:, first : first + CHUNK].T] = np.inf  # sorted behind all known entries
        columns.sort(axis=1)
        for label, column_N in enumerate(columns, start=first):
            positives = positives_P[bounds[label] : bounds[label + 1]]
            if len(positives):
                precision_L[label], auc_L[label] = _precision_and_auc(
                    column_N[: count_L[label]], np.sort(positives)
                )
    return LabelRanking(precision_L, auc_L)


def micro_auc(scores_NL: Array, row_P: Array, label_P: Array, known_NL: Array | None = None) -> float:
    """Returns the AUC of one ranking of all known entries; NaN without a positive or a negative entry."""
    if not len(row_P):
        return float("nan")
    cells = scores_NL if known_NL is None else scores_NL[known_NL]
    return _precision_and_auc(np.sort(cells, axis=None), np.sort(scores_NL[row_P, label_P]))[1]


def _precision_and_auc(all_N: Array, positives_P: Array) -> tuple[float, float]:
    """Returns average precision and AUC from all scores and the positives' scores, both ascending.

    AP = mean over positives of (positives at least as high) / (all at least as high);
    AUC = 1 - mean over positives of (negatives higher + half of those equal) / negatives.
    """
    n, p = len(all_N), len(positives_P)
    all_from = n - np.searchsorted(all_N, positives_P, side="left")
    all_above = n - np.searchsorted(all_N, positives_P, side="right")
    positives_from = p - np.searchsorted(positives_P, positives_P, side="left")
    positives_above = p - np.searchsorted(positives_P, positives_P, side="right")
    precision = float((positives_from / all_from).mean())
    if n == p:
        return precision, float("nan")
    negatives_above = all_above - positives_above
    negatives_equal = (all_from - positives_from) - negatives_above
    return precision, 1 - float((negatives_above + negatives_equal / 2).sum()) / (p * (n - p))


def position(scores_NL: Array, row_P: Array, label_P: Array, k: int) -> Array:
    """Returns the rank (P,) of every true entry in its row, 0 for the highest score.

    The rank is k for an entry that is not among the first k <= L. Of equal scores the lower label comes
    first.
    """
    top_Nk = torch.from_numpy(scores_NL).topk(k, dim=1).values.numpy()
    score_P = scores_NL[row_P, label_P]
    position_P = np.full(len(row_P), k)
    candidates = np.flatnonzero(score_P >= top_Nk[row_P, -1])
    for part in np.array_split(candidates, len(candidates) // 1024 + 1):
        row, score = row_P[part], score_P[part, None]
        n_above = (top_Nk[row] > score).sum(1)
        lower_label = np.arange(scores_NL.shape[1]) < label_P[part, None]
        position_P[part] = n_above + ((scores_NL[row] == score) & lower_label).sum(1)
    return np.asarray(np.minimum(position_P, k))


@dataclass(frozen=True)
class Counts:
    """The numbers of right (..., L), predicted (..., L) and true entries (L,) or (..., L) of each label.

    They are int64, or float64 where a fraction of other labels' counts is added. `cells` is the number of all
    known entries, an int or an array (...); unknown entries are not counted.
    """

    right: Array
    predicted: Array
    true: Array
    cells: int | Array


@dataclass(frozen=True)
class ClassPrediction:
    """A prediction of one class per row.

    `probabilities` are (N, C) float, `targets` (N,) int64, all of them known. `facts` has frequency bands and
    a hierarchy of the classes.
    """

    probabilities: Array
    targets: Array
    facts: LabelFacts = NO_FACTS

    @cached_property
    def predicted(self) -> Array:
        """The most probable class of each row (N,); of equally probable classes the lower."""
        return np.asarray(self.probabilities.argmax(1))

    @cached_property
    def right(self) -> Array:
        """Whether the predicted class is the target (N,) bool."""
        return np.asarray(self.predicted == self.targets)

    @cached_property
    def counts(self) -> Counts:
        """The numbers of right, predicted and true rows of each class."""
        n = self.probabilities.shape[1]
        return Counts(
            right=np.bincount(self.targets[self.right], minlength=n),
            predicted=np.bincount(self.predicted, minlength=n),
            true=np.bincount(self.targets, minlength=n),
            cells=len(self.targets),
        )

    @property
    def true_path(self) -> Array:
        """The rows' own classes (N, H) at every level of a hierarchy, the coarsest first, -1 if unknown."""
        row_path = self.facts.row_path
        return self.facts.paths()[self.targets] if row_path is None else row_path


@dataclass(frozen=True)
class LabelPrediction:
    """A prediction of several labels per row.

    Attributes:
        probabilities: Probabilities (N, L), float.
        predicted: Whether each label is predicted (N, L), bool; no unknown entry is.
        row: The row of each true entry (P,), int64.
        label: The label of each true entry (P,), int64.
        depth: The number of a row's most probable labels that `position` ranks.
        facts: Frequency bands and a hierarchy of the labels.
        known: Whether each entry is known (N, L), bool; None if all are known.
    """

    probabilities: Array
    predicted: Array
    row: Array
    label: Array
    depth: int
    facts: LabelFacts = NO_FACTS
    known: Array | None = None

    def rows_with_known(self, least: int) -> Array:
        """Whether each row has at least `least` known entries (N,) bool."""
        if self.known is None:
            return np.full(len(self.probabilities), self.probabilities.shape[1] >= least)
        return np.asarray(self.known.sum(axis=1) >= least)

    @cached_property
    def in_rows(self) -> Array:
        """The probabilities (N, L), with -inf for unknown entries, which ranks them last in their row."""
        return self.probabilities if self.known is None else np.where(self.known, self.probabilities, -np.inf)

    @cached_property
    def right(self) -> Array:
        """Whether each true entry is predicted (P,) bool."""
        return np.asarray(self.predicted[self.row, self.label])

    @cached_property
    def counts(self) -> Counts:
        """The numbers of right, predicted and true entries of each label."""
        n, n_labels = self.probabilities.shape
        return Counts(
            right=np.bincount(self.label[self.right], minlength=n_labels),
            predicted=self.predicted.sum(0),
            true=np.bincount(self.label, minlength=n_labels),
            cells=n * n_labels if self.known is None else int(self.known.sum()),
        )

    @cached_property
    def ranking(self) -> LabelRanking:
        """Each label's average precision and area under the ROC curve."""
        return rank_labels(self.probabilities, self.row, self.label, self.known)

    @cached_property
    def position(self) -> Array:
        """The rank (P,) of every true entry's probability in its row, 0 for the highest, at most `depth`."""
        return position(self.in_rows, self.row, self.label, self.depth)


def ratio(part: Array, whole: Array) -> Array:
    """Returns part / whole; 0 where the whole is 0."""
    part, whole = np.broadcast_arrays(part, whole)
    return np.divide(part, whole, out=np.zeros(whole.shape), where=whole != 0)


def label_mean(values: Array) -> Array:
    """Returns the mean over labels, which are the last axis."""
    # Contiguous labels: numpy then adds in the same order with and without leading axes.
    return np.asarray(np.ascontiguousarray(values).mean(axis=-1))
