"""Each label's ranking of the rows: average precision and area under the ROC curve, and their means.

Labels that cannot be scored are left out of the means: those without a positive, for the area also those
without a negative. How many remain is a metric too. A label ranks the rows that tell whether they have it.
"""

import numpy as np

from mlcl.evaluation.metric import Metric
from mlcl.evaluation.predictions import LabelPrediction, micro_auc
from mlcl.evaluation.tasks import Array


def known_mean(values_L: Array) -> float:
    """The mean of the numbers that are finite; NaN for none."""
    known = values_L[np.isfinite(values_L)]
    return float(known.mean()) if len(known) else float("nan")


def known_count(values_L: Array) -> float:
    """How many numbers are finite."""
    return float(np.isfinite(values_L).sum())


def pooled_auc(prediction: LabelPrediction) -> float:
    """The area under the ROC curve of all row-label cells."""
    return micro_auc(prediction.probabilities, prediction.row, prediction.label, prediction.known)


MAP = Metric(
    name="map",
    summary="mean average precision over the labels that can be scored",
    source="scikit-learn, average_precision_score with average macro",
    labels=lambda prediction: known_mean(prediction.ranking.average_precision),
    ranks=True,
    masked=True,
)
MACRO_AUC = Metric(
    name="macro_auc",
    summary="mean area under the ROC curve over the labels that can be scored",
    source="scikit-learn, roc_auc_score with average macro",
    labels=lambda prediction: known_mean(prediction.ranking.auc),
    ranks=True,
    masked=True,
)
MICRO_AUC = Metric(
    name="micro_auc",
    summary="area under the ROC curve of all row-label cells pooled",
    source="scikit-learn, roc_auc_score with average micro",
    labels=pooled_auc,
    ranks=True,
    masked=True,
)
LABELS_SCORED = Metric(
    name="labels_scored",
    summary="number of labels that map is the mean of",
    source="scikit-learn scores labels with a positive",
    labels=lambda prediction: known_count(prediction.ranking.average_precision),
    ranks=True,
    masked=True,
)
LABELS_SCORED_AUC = Metric(
    name="labels_scored_auc",
    summary="number of labels that macro_auc is the mean of",
    source="scikit-learn scores labels with a positive and a negative",
    labels=lambda prediction: known_count(prediction.ranking.auc),
    ranks=True,
    masked=True,
)
