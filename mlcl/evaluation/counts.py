"""Metrics of thresholded labels, from counts alone.

Shapes: N rows, L labels; any leading axes, such as one for the settings of a sweep.
"""

from __future__ import annotations

from collections.abc import Callable
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


def micro_f1(counts: Counts) -> Array:
    """2 TP / (predicted + true) with all labels pooled."""
    size = counts.predicted.sum(-1) + counts.true.sum(-1)
    return _ratio(2 * counts.right.sum(-1), size)


def macro_f1(counts: Counts) -> Array:
    """Mean over all labels of each one's F1, 0 where it neither occurs nor is predicted (sklearn)."""
    return _mean(_ratio(2 * counts.right, counts.predicted + counts.true))


def macro_f1_caml(counts: Counts) -> Array:
    """F1 of the macro precision and the macro recall, as CAML and PLM-ICD report it."""
    precision = _mean(_ratio(counts.right, counts.predicted))
    recall = _mean(_ratio(counts.right, counts.true))
    return _ratio(2 * precision * recall, precision + recall)


def hamming_loss(counts: Counts) -> Array:
    """Share of the row-label cells that are wrong."""
    wrong = counts.predicted.sum(-1) + counts.true.sum(-1) - 2 * counts.right.sum(-1)
    return np.asarray(wrong / counts.cells)


COUNT_METRICS: dict[str, Callable[[Counts], Array]] = {
    "micro_f1": micro_f1,
    "macro_f1": macro_f1,
    "macro_f1_caml": macro_f1_caml,
    "hamming_loss": hamming_loss,
}


def _ratio(part: Array, whole: Array) -> Array:
    part, whole = np.broadcast_arrays(part, whole)
    return np.divide(part, whole, out=np.zeros(whole.shape), where=whole != 0)


def _mean(values: Array) -> Array:
    # Contiguous labels: numpy then adds in the same order with and without leading axes.
    return np.asarray(np.ascontiguousarray(values).mean(axis=-1))
