"""Counts of thresholded labels, and what metrics of them share.

Shapes: N rows, L labels; any leading axes, such as one for the settings of a sweep.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mlcl.evaluation.tasks import Array


@dataclass(frozen=True)
class Counts:
    """Per label: entries right (..., L), predicted (..., L) and true (L,), int64; `cells` is N x L."""

    right: Array
    predicted: Array
    true: Array
    cells: int


def ratio(part: Array, whole: Array) -> Array:
    """part / whole, 0 where the whole is 0."""
    part, whole = np.broadcast_arrays(part, whole)
    return np.divide(part, whole, out=np.zeros(whole.shape), where=whole != 0)


def label_mean(values: Array) -> Array:
    """The mean over labels, the last axis."""
    # Contiguous labels: numpy then adds in the same order with and without leading axes.
    return np.asarray(np.ascontiguousarray(values).mean(axis=-1))
