"""The choice of a decision on validation: one threshold, thresholds by label, or a number of labels.

Shapes: N rows, L labels, K numbers of labels.
"""

from __future__ import annotations

import numpy as np
from torch import Tensor

from mlcl.evaluation.decision import Decision, Mode, decision_scores, order_labels
from mlcl.evaluation.global_threshold import SortedScores, global_threshold, values_of
from mlcl.evaluation.label_thresholds import choose_label_thresholds
from mlcl.evaluation.metric import METRICS, Metric
from mlcl.evaluation.predictions import Counts
from mlcl.evaluation.tasks import Array, Targets, array, as_rows


def choose(
    probabilities: Tensor, targets: Targets, mode: Mode, metric: str, *, at_least_one: bool = False
) -> Decision:
    """The decision of that mode with the best figure on these rows, those of validation.

    `probabilities` (N, L) float, `targets` label rows; `metric` names the metric to optimise: one of
    `counts` itself, for any other it is micro-F1.
    A number is taken as it is. `global`: the best of all thresholds. `per_label`: see
    `choose_label_thresholds`. `top_k`: the best k up to the most labels that a row has. A threshold lies
    in the middle between two probabilities; of equally good ones the closest to one half wins, then the
    lower, and of equally good k the smallest. Without a true entry it is one half, or k = 1.

    Raises ValueError for shapes that disagree.
    """
    p_NL, rows = array(probabilities), as_rows(targets)
    if p_NL.shape != (len(rows), rows.width):
        raise ValueError(f"probabilities {p_NL.shape} for targets {(len(rows), rows.width)}")
    if isinstance(mode, float | int):
        return Decision.fixed(mode, at_least_one=at_least_one)
    true_NL = rows.dense().numpy() > 0
    wanted = choice_metric(metric)
    if mode == "top_k":
        return Decision("top_k", k=_best_k(p_NL, true_NL, wanted))
    scores_NL = decision_scores(p_NL, at_least_one=at_least_one)
    if mode == "global":
        one = global_threshold(SortedScores.of(scores_NL, true_NL), wanted)
        return Decision("global", (one,), at_least_one=at_least_one)
    found_L = choose_label_thresholds(scores_NL, true_NL, wanted)
    return Decision("per_label", tuple(found_L.tolist()), at_least_one=at_least_one)


def choice_metric(name: str) -> Metric:
    """The metric that thresholds are chosen by: the named one if it is of `counts`, else micro-F1."""
    metric = METRICS[name]
    return metric if metric.counts is not None else METRICS["micro_f1"]


def _best_k(p_NL: Array, true_NL: Array, metric: Metric) -> int:
    most = max(1, int(true_NL.sum(1).max(initial=1)))
    label_NK = order_labels(p_NL)[:, :most]
    right_NK = np.take_along_axis(true_NL, label_NK, axis=1)
    n_labels = p_NL.shape[1]
    value_K = []
    right_L, predicted_L = np.zeros(n_labels, dtype=np.int64), np.zeros(n_labels, dtype=np.int64)
    for label_N, right_N in zip(label_NK.T, right_NK.T, strict=True):
        predicted_L = predicted_L + np.bincount(label_N, minlength=n_labels)
        right_L = right_L + np.bincount(label_N[right_N], minlength=n_labels)
        value_K.append(values_of(metric, Counts(right_L, predicted_L, true_NL.sum(0), p_NL.size)))
    return int(np.argmax(value_K)) + 1
