"""Predictions beside their targets, with what several metrics need of them computed once.

Shapes: N rows, C classes, L labels, P true entries; any leading axes, such as one for the settings of a
sweep.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from mlcl.evaluation.label_facts import NO_FACTS, LabelFacts
from mlcl.evaluation.ranking import LabelRanking, position, rank_labels
from mlcl.evaluation.tasks import Array


@dataclass(frozen=True)
class Counts:
    """Per label: entries right (..., L), predicted (..., L) and true (L,) or (..., L); `cells` is N x L.

    They are int64, or float64 where labels are joined by a share of the others' counts.
    """

    right: Array
    predicted: Array
    true: Array
    cells: int


@dataclass(frozen=True)
class ClassPrediction:
    """`probabilities` (N, C) float and `targets` (N,) int64, none of them missing; `facts` of the classes."""

    probabilities: Array
    targets: Array
    facts: LabelFacts = NO_FACTS

    @cached_property
    def predicted(self) -> Array:
        """The class of the highest probability (N,); of equal ones the lower."""
        return np.asarray(self.probabilities.argmax(1))

    @cached_property
    def right(self) -> Array:
        """Whether that is the target (N,) bool."""
        return np.asarray(self.predicted == self.targets)


@dataclass(frozen=True)
class LabelPrediction:
    """`probabilities` (N, L) float, the labels that are `predicted` (N, L) bool, and the true entries.

    These are given by `row` and `label` (P,) int64; `depth` labels of a row are put in order. `facts` are
    those of the labels.
    """

    probabilities: Array
    predicted: Array
    row: Array
    label: Array
    depth: int
    facts: LabelFacts = NO_FACTS

    @cached_property
    def right(self) -> Array:
        """Which true entries are predicted (P,) bool."""
        return np.asarray(self.predicted[self.row, self.label])

    @cached_property
    def counts(self) -> Counts:
        """Right, predicted and true entries by label."""
        n, n_labels = self.probabilities.shape
        return Counts(
            right=np.bincount(self.label[self.right], minlength=n_labels),
            predicted=self.predicted.sum(0),
            true=np.bincount(self.label, minlength=n_labels),
            cells=n * n_labels,
        )

    @cached_property
    def ranking(self) -> LabelRanking:
        """Each label's average precision and area under the ROC curve."""
        return rank_labels(self.probabilities, self.row, self.label)

    @cached_property
    def position(self) -> Array:
        """The rank (P,) of every true entry in its row, 0 the highest; `depth` for all after the first."""
        return position(self.probabilities, self.row, self.label, self.depth)


def ratio(part: Array, whole: Array) -> Array:
    """part / whole, 0 where the whole is 0."""
    part, whole = np.broadcast_arrays(part, whole)
    return np.divide(part, whole, out=np.zeros(whole.shape), where=whole != 0)


def label_mean(values: Array) -> Array:
    """The mean over labels, the last axis."""
    # Contiguous labels: numpy then adds in the same order with and without leading axes.
    return np.asarray(np.ascontiguousarray(values).mean(axis=-1))
