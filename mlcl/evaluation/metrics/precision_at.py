"""Precision at k: the share of a row's k most probable labels that are its own."""

from mlcl.evaluation.metric import Metric
from mlcl.evaluation.predictions import LabelPrediction


def precision_at(k: int) -> Metric:
    """The metric `precision_at_<k>`. Of labels of one probability the lower comes first."""

    def share(prediction: LabelPrediction) -> float:
        return float((prediction.position < k).sum() / (k * len(prediction.probabilities)))

    return Metric(
        name=f"precision_at_{k}",
        summary=f"share of the {k} most probable labels that are right, mean over rows",
        source="CAML (Mullenbach et al. 2018)",
        labels=share,
        depth=k,
        ranks=True,
    )


PRECISION_AT_5 = precision_at(5)
PRECISION_AT_8 = precision_at(8)
PRECISION_AT_15 = precision_at(15)
