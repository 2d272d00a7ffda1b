"""Each label's ranking of the rows: average precision and area under the ROC curve, and their means.

Labels that cannot be scored are left out of the means: labels without a positive, for the area also labels
without a negative. How many remain is a metric too. A label ranks the rows in which it is known.
"""

from collections.abc import Callable

import numpy as np

from mlcl.evaluation.metric import Metric
from mlcl.evaluation.predictions import LabelPrediction, micro_auc
from mlcl.evaluation.tasks import Array


def known_mean(values_L: Array) -> float:
    """The mean of the finite numbers; NaN for none."""
    known = values_L[np.isfinite(values_L)]
    return float(known.mean()) if len(known) else float("nan")


def known_count(values_L: Array) -> float:
    """The number of finite numbers."""
    return float(np.isfinite(values_L).sum())


def ranking(name: str, summary: str, source: str, value: Callable[[LabelPrediction], float]) -> Metric:
    """A metric that reads the order of probabilities, and leaves unknown entries out."""
    return Metric(name=name, summary=summary, source=source, labels=value, ranks=True, masked=True)


MAP = ranking(
    "map",
    "mean average precision over the labels that can be scored",
    "scikit-learn, average_precision_score with average macro",
    lambda prediction: known_mean(prediction.ranking.average_precision),
)
MACRO_AUC = ranking(
    "macro_auc",
    "mean area under the ROC curve over the labels that can be scored",
    "scikit-learn, roc_auc_score with average macro",
    lambda prediction: known_mean(prediction.ranking.auc),
)
MICRO_AUC = ranking(
    "micro_auc",
    "area under the ROC curve of all row-label cells pooled",
    "scikit-learn, roc_auc_score with average micro",
    lambda prediction: micro_auc(
        prediction.probabilities, prediction.row, prediction.label, prediction.known
    ),
)
LABELS_SCORED = ranking(
    "labels_scored",
    "number of labels that map is the mean of",
    "scikit-learn scores labels with a positive",
    lambda prediction: known_count(prediction.ranking.average_precision),
)
LABELS_SCORED_AUC = ranking(
    "labels_scored_auc",
    "number of labels that macro_auc is the mean of",
    "scikit-learn scores labels with a positive and a negative",
    lambda prediction: known_count(prediction.ranking.auc),
)
