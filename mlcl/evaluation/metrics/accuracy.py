"""Metrics of right predictions: accuracy of classes, subset accuracy and Hamming loss of labels."""

import numpy as np

from mlcl.evaluation.metric import Metric
from mlcl.evaluation.predictions import Counts, LabelPrediction
from mlcl.evaluation.tasks import Array

ACCURACY = Metric(
    name="accuracy",
    summary="share of rows whose class is the most probable one; of aspects the mean",
    source="MLCL section 4",
    hits=lambda right, known: np.asarray(right / known),  # for single classes this is micro-F1
)


def hamming_loss(counts: Counts) -> Array:
    """Returns (predicted + true - 2 right) / cells, where the counts are summed over labels."""
    n_wrong = counts.predicted.sum(-1) + counts.true.sum(-1) - 2 * counts.right.sum(-1)
    return np.asarray(n_wrong / counts.cells)


HAMMING_LOSS = Metric(
    name="hamming_loss",
    summary="share of the row-label cells that are wrong",
    source="scikit-learn, hamming_loss",
    mode="min",
    counts=hamming_loss,
    pooled=True,
)


def subset_accuracy(prediction: LabelPrediction) -> float:
    """Returns the fraction of rows with a known entry whose known labels are exactly the predicted ones."""
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
