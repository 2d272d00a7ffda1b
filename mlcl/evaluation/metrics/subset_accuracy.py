"""Subset accuracy: the fraction of rows whose whole label set is predicted right."""

import numpy as np

from mlcl.evaluation.metric import Metric
from mlcl.evaluation.predictions import LabelPrediction


def subset_accuracy(prediction: LabelPrediction) -> float:
    """Returns the fraction of rows whose predicted labels are exactly the true ones.

    Only the known entries of a row count; a row without a known entry is left out.
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
