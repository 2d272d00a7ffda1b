"""F1 and accuracy of frequent, medium and rare labels, in bands by their number of training rows."""

import numpy as np
from sklearn.metrics import f1_score

from mlcl.evaluation.metric import Metric
from mlcl.evaluation.metrics.f1 import macro_f1, micro_f1
from mlcl.evaluation.predictions import ClassPrediction, Counts, LabelPrediction
from mlcl.evaluation.tasks import BANDS

SOURCE = "bands as Liu et al. 2019, Large-scale long-tailed recognition"


def f1_of_band(band: str, average: str) -> Metric:
    """The metric `<band>_<average>_f1`: F1 over the labels or classes of the band, NaN where it has none.

    The macro average of classes is over those of the band that occur or are predicted.
    """
    of_counts = {"micro": micro_f1, "macro": macro_f1}[average]

    def of_labels(prediction: LabelPrediction) -> float:
        inside_L, whole = prediction.facts.in_band(band), prediction.counts
        if not inside_L.any():
            return float("nan")
        part = Counts(whole.right[inside_L], whole.predicted[inside_L], whole.true[inside_L], whole.cells)
        return float(of_counts(part))

    def of_classes(prediction: ClassPrediction) -> float:
        seen = np.union1d(prediction.targets, prediction.predicted)
        classes = seen[prediction.facts.in_band(band)[seen]]
        if not len(classes):
            return float("nan")
        return float(
            f1_score(
                prediction.targets, prediction.predicted, labels=classes, average=average, zero_division=0
            )
        )

    return Metric(
        name=f"{band}_{average}_f1",
        summary=f"{average} F1 of the labels or classes of the {band} band",
        source=SOURCE,
        group="bands",
        labels=of_labels,
        masked=True,
        classes=of_classes,
    )


def accuracy_of_band(band: str) -> Metric:
    """The metric `<band>_accuracy`: accuracy over the rows whose class is in the band, NaN for no row."""

    def of_classes(prediction: ClassPrediction) -> float:
        inside_N = prediction.facts.in_band(band)[prediction.targets]
        return float(prediction.right[inside_N].mean()) if inside_N.any() else float("nan")

    return Metric(
        name=f"{band}_accuracy",
        summary=f"accuracy over the rows whose class is of the {band} band",
        source=SOURCE,
        group="bands",
        classes=of_classes,
    )


HEAD_MICRO_F1, MEDIUM_MICRO_F1, TAIL_MICRO_F1 = (f1_of_band(band, "micro") for band in BANDS)
HEAD_MACRO_F1, MEDIUM_MACRO_F1, TAIL_MACRO_F1 = (f1_of_band(band, "macro") for band in BANDS)
HEAD_ACCURACY, MEDIUM_ACCURACY, TAIL_ACCURACY = (accuracy_of_band(band) for band in BANDS)
