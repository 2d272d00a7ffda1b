"""Metrics of each label's ranking of the rows: average precision, area under the ROC curve, and their means.

Labels that cannot be scored are left out of the means: labels without a positive row, and for the area also
labels without a negative row. The number of remaining labels is a metric, too. A label ranks only the rows
for which it is known.
"""

from collections.abc import Callable
from typing import Literal

import numpy as np

from mlcl.evaluation.metric import Metric
from mlcl.evaluation.predictions import micro_auc, ratio
from mlcl.evaluation.rankings_without import auc_without, average_precision_without
from mlcl.evaluation.tasks import Array


def known_mean(values: Array) -> Array:
    """Returns the mean of the finite numbers along the last axis; NaN if there are none."""
    finite = np.isfinite(values)
    mean = ratio(np.where(finite, values, 0).sum(-1), finite.sum(-1))
    return np.where(finite.any(-1), mean, np.nan)


def known_count(values: Array) -> Array:
    """Returns the number of finite numbers along the last axis."""
    return np.asarray(np.isfinite(values).sum(-1), dtype=np.float64)


WITHOUT = {"average_precision": average_precision_without, "auc": auc_without}


def ranking_metric(
    name: str,
    summary: str,
    source: str,
    kind: Literal["average_precision", "auc"],
    combine: Callable[[Array], Array],
) -> Metric:
    """Declares a metric that applies `combine` to the average precision or AUC of all labels (..., L)."""
    return Metric(
        name=name,
        summary=summary,
        source=source,
        labels=lambda prediction: float(combine(getattr(prediction.ranking, kind))),
        without_blocks=lambda rows: combine(rows.by_label(WITHOUT[kind])),
        ranks=True,
        masked=True,
    )


MAP = ranking_metric(
    "map",
    "mean average precision over the labels that can be scored",
    "scikit-learn, average_precision_score with average macro",
    "average_precision",
    known_mean,
)
MACRO_AUC = ranking_metric(
    "macro_auc",
    "mean area under the ROC curve over the labels that can be scored",
    "scikit-learn, roc_auc_score with average macro",
    "auc",
    known_mean,
)
MICRO_AUC = Metric(
    name="micro_auc",
    summary="area under the ROC curve of all row-label cells pooled",
    source="scikit-learn, roc_auc_score with average micro",
    labels=lambda rows: micro_auc(rows.probabilities, rows.row, rows.label, rows.known),
    without_blocks=lambda rows: rows.pooled(auc_without),
    ranks=True,
    masked=True,
)
LABELS_SCORED = ranking_metric(
    "labels_scored",
    "number of labels that map is the mean of",
    "scikit-learn scores labels with a positive",
    "average_precision",
    known_count,
)
LABELS_SCORED_AUC = ranking_metric(
    "labels_scored_auc",
    "number of labels that macro_auc is the mean of",
    "scikit-learn scores labels with a positive and a negative",
    "auc",
    known_count,
)
