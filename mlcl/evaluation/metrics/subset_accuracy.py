"""Subset accuracy: the share of rows whose label set is predicted exactly.

Of a row with unknown entries the known ones count; a row that tells nothing is left out.
"""

import numpy as np

from mlcl.evaluation.metric import Metric
from mlcl.evaluation.predictions import LabelPrediction


def subset_accuracy(prediction: LabelPrediction) -> float:
    """Rows without a missed label that have as many predicted as right ones, / N."""
    n, right_P = len(prediction.probabilities), prediction.right
    missed_N = np.bincount(prediction.row[~right_P], minlength=n)
    right_N = np.bincount(prediction.row[right_P], minlength=n)
    exact_N = (missed_N == 0) & (prediction.predicted.sum(1) == right_N)
    return float(exact_N[prediction.telling(1)].mean())


SUBSET_ACCURACY = Metric(
    name="subset_accuracy",
    summary="share of rows whose label set is predicted exactly",
    source="scikit-learn, accuracy_score of label rows",
    labels=subset_accuracy,
    masked=True,
)
