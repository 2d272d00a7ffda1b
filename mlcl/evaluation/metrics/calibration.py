"""The expected calibration error: how far probabilities are from the shares of predictions that come true.

Shapes: n predictions, M bins, B blocks.
"""

import numpy as np

from mlcl.evaluation.metric import Metric
from mlcl.evaluation.predictions import ClassPrediction, LabelPrediction
from mlcl.evaluation.tasks import Array

BINS = 15
"""The number M of bins; bin m holds the probabilities in ((m - 1) / M, m / M], and the first one also 0."""
EDGES = np.arange(1, BINS) / BINS


def calibration_error(p_n: Array, true_n: Array) -> float:
    """Returns sum_m |B_m| / n |acc(B_m) - conf(B_m)| over the M bins.

    B_m are the predictions with a probability (n,) in bin m, conf(B_m) is the mean of their probabilities,
    and acc(B_m) the share of them that is true (n,).
    """
    surplus_M = np.bincount(np.searchsorted(EDGES, p_n), true_n - p_n.astype(np.float64))
    return float(np.abs(surplus_M).sum() / len(p_n))


def error_without(p_n: Array, true_n: Array, block_n: Array, blocks: int) -> Array:
    """Returns the calibration error without each block (B,); NaN if no prediction remains."""
    cell_n = block_n * BINS + np.searchsorted(EDGES, p_n)
    surplus = np.bincount(cell_n, true_n - p_n.astype(np.float64), blocks * BINS).reshape(blocks, BINS)
    remaining_B = len(p_n) - np.bincount(block_n, minlength=blocks)
    with np.errstate(invalid="ignore"):
        return np.asarray(np.abs(surplus.sum(0) - surplus).sum(1) / remaining_B)


def _label_error(prediction: LabelPrediction) -> float:
    true_NL = np.zeros(prediction.probabilities.shape, dtype=bool)
    true_NL[prediction.row, prediction.label] = True
    cells = ... if prediction.known is None else prediction.known
    return calibration_error(prediction.probabilities[cells].ravel(), true_NL[cells].ravel())


def _class_error(prediction: ClassPrediction) -> float:
    return calibration_error(prediction.probabilities.max(1), prediction.right)


CALIBRATION_ERROR = Metric(
    name="calibration_error",
    summary=f"mean distance of probabilities from the share that comes true, in {BINS} bins of equal width",
    source="Guo et al. 2017, arXiv 1706.04599, Eq. 3",
    mode="min",
    group="calibration",
    labels=_label_error,
    ranks=True,
    masked=True,
    without_blocks=lambda rows: rows.pooled(error_without),
    classes=_class_error,
)
