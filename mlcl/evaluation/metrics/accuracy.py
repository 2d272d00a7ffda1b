"""Accuracy of class predictions."""

import numpy as np

from mlcl.evaluation.metric import Metric
from mlcl.evaluation.tasks import Array


def share_of_hits(right: Array, known: Array) -> Array:
    """Returns right rows / rows that have a target. For single classes this equals micro-F1."""
    return np.asarray(right / known)


ACCURACY = Metric(
    name="accuracy",
    summary="share of rows whose class is the most probable one; of aspects the mean",
    source="MLCL section 4",
    hits=share_of_hits,
)
