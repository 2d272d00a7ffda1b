"""F1: pooled over labels, as the mean of each label's F1, and computed from macro precision and recall."""

import numpy as np

from mlcl.evaluation.metric import Metric
from mlcl.evaluation.predictions import Counts, label_mean, ratio
from mlcl.evaluation.tasks import Array


def micro_f1(counts: Counts) -> Array:
    """Returns 2 TP / (predicted + true), with the counts of all labels added up."""
    size = counts.predicted.sum(-1) + counts.true.sum(-1)
    return ratio(2 * counts.right.sum(-1), size)


def macro_f1(counts: Counts) -> Array:
    """Returns the mean F1 over all labels; 0 for a label that neither occurs nor is predicted."""
    return label_mean(ratio(2 * counts.right, counts.predicted + counts.true))


def macro_f1_of_classes(counts: Counts) -> Array:
    """Returns the mean F1 over the classes that at least one row has as its target.

    So all predictions for the same rows are averaged over the same classes. If the jackknife leaves out a
    block of rows, only the classes of the remaining rows are averaged.
    """
    return _class_mean(counts, counts.true > 0)


def macro_f1_predicted(counts: Counts) -> Array:
    """Returns the mean F1 over the classes that are the target or the prediction of at least one row."""
    return _class_mean(counts, counts.predicted + counts.true > 0)


def _class_mean(counts: Counts, averaged: Array) -> Array:
    """Returns the sum of all classes' F1 / the number of classes for which `averaged` (..., C) is true."""
    f1 = ratio(2 * counts.right, counts.predicted + counts.true)
    return np.asarray(f1.sum(-1) / averaged.sum(-1))


def macro_f1_caml(counts: Counts) -> Array:
    """Returns the harmonic mean of precision and recall, each averaged over all labels."""
    precision = label_mean(ratio(counts.right, counts.predicted))
    recall = label_mean(ratio(counts.right, counts.true))
    return ratio(2 * precision * recall, precision + recall)


MICRO_F1 = Metric(
    name="micro_f1",
    summary="F1 of all row-label cells pooled",
    source="scikit-learn, f1_score with average micro",
    counts=micro_f1,
    pooled=True,
)
MACRO_F1 = Metric(
    name="macro_f1",
    summary="mean F1 over all labels, or over the classes that have a row; of aspects the mean of that",
    source="scikit-learn, f1_score with average macro, labels the classes of the targets",
    counts=macro_f1,
    class_counts=macro_f1_of_classes,
)
MACRO_F1_PREDICTED = Metric(
    name="macro_f1_predicted",
    summary="mean F1 over the classes that have a row or are predicted; of aspects the mean of that",
    source="scikit-learn, f1_score with average macro and labels by default",
    group="averages",
    class_counts=macro_f1_predicted,
)
MACRO_F1_CAML = Metric(
    name="macro_f1_caml",
    summary="F1 of macro precision and macro recall, as CAML and PLM-ICD report it",
    source="CAML (Mullenbach et al. 2018)",
    counts=macro_f1_caml,
)
