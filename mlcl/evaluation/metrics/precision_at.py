"""Precision at k: the share of a row's k most probable labels that are its own.

Labels of which a row does not tell are not ranked; rows that tell fewer than k are left out.
"""

from mlcl.evaluation.metric import Metric
from mlcl.evaluation.predictions import LabelPrediction


def precision_at(k: int) -> Metric:
    """The metric `precision_at_<k>`. Of labels of one probability the lower comes first; NaN without rows."""

    def share(prediction: LabelPrediction) -> float:
        telling_N = prediction.telling(k)
        if not telling_N.any():
            return float("nan")
        hits_P = (prediction.position < k) & telling_N[prediction.row]
        return float(hits_P.sum() / (k * telling_N.sum()))

    return Metric(
        name=f"precision_at_{k}",
        summary=f"share of the {k} most probable labels that are right, mean over rows",
        source="CAML (Mullenbach et al. 2018)",
        labels=share,
        depth=k,
        ranks=True,
        masked=True,
    )


PRECISION_AT_5 = precision_at(5)
PRECISION_AT_8 = precision_at(8)
PRECISION_AT_15 = precision_at(15)
