"""Accuracy of classes."""

import numpy as np

from mlcl.evaluation.metric import Metric
from mlcl.evaluation.tasks import Array


def share_of_hits(right: Array, known: Array) -> Array:
    """Right rows / rows that have a target. Micro-F1 of classes equals it."""
    return np.asarray(right / known)


ACCURACY = Metric(
    name="accuracy",
    summary="share of rows whose class is the most probable one; of aspects the mean",
    source="MLCL section 4",
    hits=share_of_hits,
)
