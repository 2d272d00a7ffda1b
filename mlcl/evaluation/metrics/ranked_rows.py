"""Each row's ranking of the labels: R-precision, nDCG, coverage error and ranking loss.

They are means over the rows that have a label, NaN where none has. Labels of which a row does not tell are
not ranked; but for R-precision, rows that tell of one label alone are left out. Shapes: N rows, R rows with a
label, L labels.
"""

from collections.abc import Callable

import numpy as np
from sklearn.metrics import coverage_error, label_ranking_loss, ndcg_score

from mlcl.evaluation.metric import Metric
from mlcl.evaluation.predictions import LabelPrediction, position
from mlcl.evaluation.tasks import Array


def r_precision(prediction: LabelPrediction) -> float:
    """Of the n_i labels of row i, the share that is among the n_i most probable; of equal ones the lower."""
    p_NL, row_P = prediction.in_rows, prediction.row
    size_N = np.bincount(row_P, minlength=len(p_NL))
    if not size_N.any():
        return float("nan")
    rank_P = position(p_NL, row_P, prediction.label, int(size_N.max()))
    hits_N = np.bincount(row_P[rank_P < size_N[row_P]], minlength=len(p_NL))
    return float((hits_N[size_N > 0] / size_N[size_N > 0]).mean())


def of_labelled_rows(measure: Callable[[Array, Array], float]) -> Callable[[LabelPrediction], float]:
    """A metric of scikit-learn, which takes the true labels (R, L) and the probabilities (R, L)."""

    def value(prediction: LabelPrediction) -> float:
        row_R, row_P = np.unique(prediction.row, return_inverse=True)
        if not len(row_R):
            return float("nan")
        true_RL = np.zeros((len(row_R), prediction.probabilities.shape[1]), dtype=np.int8)
        true_RL[row_P, prediction.label] = 1
        p_RL = prediction.probabilities[row_R]
        if prediction.known is None:
            return float(measure(true_RL, p_RL))
        return _of_known(measure, true_RL, p_RL, prediction.known[row_R])

    return value


def _of_known(
    measure: Callable[[Array, Array], float], true_RL: Array, p_RL: Array, known_RL: Array
) -> float:
    """The mean over rows of their known labels alone, from the means of rows that have as many of them."""
    told_R = known_RL.sum(axis=1)
    sizes = np.unique(told_R[told_R > 1])
    if not len(sizes):
        return float("nan")
    means = []
    for size in sizes:
        rows = told_R == size
        true, p = (each[rows][known_RL[rows]].reshape(-1, size) for each in (true_RL, p_RL))
        means.append(measure(true, p))
    return float(np.average(means, weights=[(told_R == size).sum() for size in sizes]))


R_PRECISION = Metric(
    name="r_precision",
    summary="of a row with n labels, the share of the n most probable ones that is right, mean over rows",
    source="Manning et al. 2008, Introduction to information retrieval, 8.4",
    group="ranking",
    labels=r_precision,
    depth=2,
    ranks=True,
    masked=True,
)
NDCG = Metric(
    name="ndcg",
    summary="gain of a row's labels, discounted by their rank, over the best possible; ties averaged",
    source="scikit-learn, ndcg_score",
    group="ranking",
    labels=of_labelled_rows(ndcg_score),
    depth=2,
    ranks=True,
    masked=True,
)
COVERAGE_ERROR = Metric(
    name="coverage_error",
    summary="how many of the most probable labels have all of a row's own, mean over rows",
    source="scikit-learn, coverage_error",
    mode="min",
    group="ranking",
    labels=of_labelled_rows(coverage_error),
    depth=2,
    ranks=True,
    masked=True,
)
RANKING_LOSS = Metric(
    name="ranking_loss",
    summary="share of a row's pairs of its own and another label in which the other is as probable or more",
    source="scikit-learn, label_ranking_loss",
    mode="min",
    group="ranking",
    labels=of_labelled_rows(label_ranking_loss),
    depth=2,
    ranks=True,
    masked=True,
)
