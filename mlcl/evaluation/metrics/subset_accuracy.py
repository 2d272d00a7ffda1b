"""Accuracy of whole label sets."""

import numpy as np

from mlcl.evaluation.metric import Metric
from mlcl.evaluation.predictions import LabelPrediction


def subset_accuracy(prediction: LabelPrediction) -> float:
    """The share of rows without a missed label that have as many predicted as right ones.

    The known entries of a row count; a row without a known entry is left out.
    """
    n, right_P = len(prediction.probabilities), prediction.right
    missed_N = np.bincount(prediction.row[~right_P], minlength=n)
    right_N = np.bincount(prediction.row[right_P], minlength=n)
    exact_N = (missed_N == 0) & (prediction.predicted.sum(1) == right_N)
    return float(exact_N[prediction.rows_with_known(1)].mean())


SUBSET_ACCURACY = Metric(
    name="subset_accuracy",
    summary="share of rows whose label set is predicted exactly",
    source="scikit-learn, accuracy_score of label rows",
    labels=subset_accuracy,
    masked=True,
)
