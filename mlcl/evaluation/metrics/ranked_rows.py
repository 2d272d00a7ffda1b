"""Metrics of each row's ranking of the labels, such as precision at k, nDCG and ranking loss.

Labels that are unknown for a row are not ranked. Precision at k leaves out rows with fewer than k known
labels. The other metrics are means over the rows that have a label, NaN if there is no such row; all but
R-precision also leave out rows with only one known label.

Shapes: N rows, R rows with a label, L labels.
"""

from collections.abc import Callable
from typing import Literal

import numpy as np

from mlcl.evaluation.metric import Metric
from mlcl.evaluation.predictions import LabelPrediction, position
from mlcl.evaluation.tasks import Array


def precision_at(k: int) -> Metric:
    """Returns the metric `precision_at_<k>`: the fraction of a row's k most probable labels that are right.

    Of equally probable labels the lower one comes first. The value is the mean over the rows with at least k
    known labels; NaN if there is none.
    """

    def share(prediction: LabelPrediction) -> float:
        counted_N = prediction.rows_with_known(k)
        if not counted_N.any():
            return float("nan")
        hits_P = (prediction.position < k) & counted_N[prediction.row]
        return float(hits_P.sum() / (k * counted_N.sum()))

    return Metric(
        name=f"precision_at_{k}",
        summary=f"share of the {k} most probable labels that are right, mean over rows",
        source="CAML (Mullenbach et al. 2018)",
        labels=share,
        depth=k,
        ranks=True,
        masked=True,
    )


def r_precision(prediction: LabelPrediction) -> float:
    """Returns the mean over rows i of the fraction of the n_i most probable labels that are right.

    n_i is the number of true labels of row i; rows without one are left out. Of equally probable labels the
    lower one comes first.
    """
    p_NL, row_P = prediction.in_rows, prediction.row
    size_N = np.bincount(row_P, minlength=len(p_NL))
    if not size_N.any():
        return float("nan")
    rank_P = position(p_NL, row_P, prediction.label, int(size_N.max()))
    hits_N = np.bincount(row_P[rank_P < size_N[row_P]], minlength=len(p_NL))
    return float((hits_N[size_N > 0] / size_N[size_N > 0]).mean())


def labelled_rows_metric(
    name: str, summary: str, function: str, mode: Literal["max", "min"] = "min"
) -> Metric:
    """Returns a metric that applies a function of `sklearn.metrics` to the rows with a label.

    The function takes the true labels (R, L) and the probabilities (R, L).
    """

    def value(prediction: LabelPrediction) -> float:
        from sklearn import metrics  # imported late: most commands do not need it

        measure: Callable[[Array, Array], float] = getattr(metrics, function)
        row_R, row_P = np.unique(prediction.row, return_inverse=True)
        if not len(row_R):
            return float("nan")
        true_RL = np.zeros((len(row_R), prediction.probabilities.shape[1]), dtype=np.int8)
        true_RL[row_P, prediction.label] = 1
        p_RL = prediction.probabilities[row_R]
        if prediction.known is None:
            return float(measure(true_RL, p_RL))
        return _mean_over_known(measure, true_RL, p_RL, prediction.known[row_R])

    return Metric(
        name=name,
        summary=summary,
        source=f"scikit-learn, {function}",
        mode=mode,
        group="ranking",
        labels=value,
        depth=2,
        ranks=True,
        masked=True,
    )


def _mean_over_known(
    measure: Callable[[Array, Array], float], true_RL: Array, p_RL: Array, known_RL: Array
) -> float:
    """Returns the mean of `measure` on each row's known labels, over rows with two or more; NaN if none."""
    count_R = known_RL.sum(axis=1)
    sizes, rows = np.unique(count_R[count_R > 1], return_counts=True)
    if not len(sizes):
        return float("nan")
    means = []  # one for each number of known labels in a row
    for size in sizes:
        same_R = count_R == size
        means.append(
            measure(*(matrix_RL[same_R][known_RL[same_R]].reshape(-1, size) for matrix_RL in (true_RL, p_RL)))
        )
    return float(np.average(means, weights=rows))


PRECISION_AT_5 = precision_at(5)
PRECISION_AT_8 = precision_at(8)
PRECISION_AT_15 = precision_at(15)
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
NDCG = labelled_rows_metric(
    "ndcg",
    "gain of a row's labels, discounted by their rank, over the best possible; ties averaged",
    "ndcg_score",
    mode="max",
)
COVERAGE_ERROR = labelled_rows_metric(
    "coverage_error",
    "how many of the most probable labels have all of a row's own, mean over rows",
    "coverage_error",
)
RANKING_LOSS = labelled_rows_metric(
    "ranking_loss",
    "share of a row's pairs of its own and another label in which the other is as probable or more",
    "label_ranking_loss",
)
