"""Hamming loss: the fraction of row-label entries that are predicted wrongly."""

import numpy as np

from mlcl.evaluation.metric import Metric
from mlcl.evaluation.predictions import Counts
from mlcl.evaluation.tasks import Array


def hamming_loss(counts: Counts) -> Array:
    """Returns (predicted + true - 2 right) / cells, where the counts are summed over labels."""
    wrong = counts.predicted.sum(-1) + counts.true.sum(-1) - 2 * counts.right.sum(-1)
    return np.asarray(wrong / counts.cells)


HAMMING_LOSS = Metric(
    name="hamming_loss",
    summary="share of the row-label cells that are wrong",
    source="scikit-learn, hamming_loss",
    mode="min",
    counts=hamming_loss,
    pooled=True,
)
