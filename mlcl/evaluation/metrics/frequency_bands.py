"""F1 and accuracy of frequent, medium and rare labels, in bands by the number of training rows."""

from mlcl.evaluation.metric import Metric
from mlcl.evaluation.metrics.f1 import macro_f1_of_classes, micro_f1
from mlcl.evaluation.predictions import ClassPrediction, Counts, LabelPrediction
from mlcl.evaluation.tasks import BANDS

SOURCE = "bands as Liu et al. 2019, Large-scale long-tailed recognition"


def f1_of_band(band: str, average: str) -> Metric:
    """Returns the metric `<band>_<average>_f1`: F1 over the labels or classes of the band.

    The macro average is over the labels or classes of the band that at least one row has. The metric is NaN
    if no row has a label or class of the band.
    """
    average_of = {"micro": micro_f1, "macro": macro_f1_of_classes}[average]

    def band_f1(prediction: LabelPrediction | ClassPrediction) -> float:
        label_counts, inside_L = prediction.counts, prediction.facts.in_band(band)
        right, predicted, true = (
            count_L[inside_L] for count_L in (label_counts.right, label_counts.predicted, label_counts.true)
        )
        counts = Counts(right, predicted, true, label_counts.cells)
        return float(average_of(counts)) if counts.true.any() else float("nan")

    return Metric(
        name=f"{band}_{average}_f1",
        summary=f"{average} F1 of the labels or classes of the {band} band",
        source=SOURCE,
        group="bands",
        labels=band_f1,
        masked=True,
        classes=band_f1,
    )


def accuracy_of_band(band: str) -> Metric:
    """Returns the metric `<band>_accuracy`: accuracy over the rows with a class of the band; NaN if none."""

    def band_accuracy(prediction: ClassPrediction) -> float:
        inside_N = prediction.facts.in_band(band)[prediction.targets]
        return float(prediction.right[inside_N].mean()) if inside_N.any() else float("nan")

    return Metric(
        name=f"{band}_accuracy",
        summary=f"accuracy over the rows whose class is of the {band} band",
        source=SOURCE,
        group="bands",
        classes=band_accuracy,
    )


HEAD_MICRO_F1, MEDIUM_MICRO_F1, TAIL_MICRO_F1 = (f1_of_band(band, "micro") for band in BANDS)
HEAD_MACRO_F1, MEDIUM_MACRO_F1, TAIL_MACRO_F1 = (f1_of_band(band, "macro") for band in BANDS)
HEAD_ACCURACY, MEDIUM_ACCURACY, TAIL_ACCURACY = (accuracy_of_band(band) for band in BANDS)
