"""Decisions: which labels a row of probabilities predicts, as validation chooses.

    decision = choose(probabilities, targets, "global", "micro_f1")
    decision.predict(array(probabilities))                               # (N, L) bool
    evaluate("multi_label", test_probabilities, test_targets, decision)  # all metrics

Shapes: N rows, L labels, K numbers of labels.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal, Self

import numpy as np
from torch import Tensor

from mlcl.evaluation.global_threshold import UNKNOWN, SortedScores, global_threshold, values_of
from mlcl.evaluation.label_thresholds import choose_label_thresholds
from mlcl.evaluation.metric import METRICS, Metric
from mlcl.evaluation.predictions import Counts
from mlcl.evaluation.tasks import Array, Targets, array, as_rows, known_entries

Mode = float | Literal["global", "per_label", "top_k"]
"""A threshold that is given, or what is chosen on validation: one threshold, one a label, or a number of
labels."""


@dataclass(frozen=True)
class Decision:
    """Label l of row n is predicted where p_nl >= t_l, compared in float64; with `k` the k most probable are.

    `thresholds` holds one for all labels, or L of them; it is empty where `k` is set. With `at_least_one` the
    most probable label of every row is predicted besides. Of equally probable labels the lower is the more
    probable one. `mode` says how it was found: `fixed`, `global`, `per_label` or `top_k`.
    """

    mode: Literal["fixed", "global", "per_label", "top_k"]
    thresholds: tuple[float, ...] = ()
    k: int | None = None
    at_least_one: bool = False

    @classmethod
    def fixed(cls, threshold: float, *, at_least_one: bool = False) -> Self:
        """One given threshold for all labels. It is rounded to float32, as are the classifiers' outputs."""
        return cls("fixed", (float(np.float32(threshold)),), at_least_one=at_least_one)

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> Self:
        """From what `to_json` gave."""
        return cls(**{**document, "thresholds": tuple(document["thresholds"])})

    def to_json(self) -> dict[str, Any]:
        """The fields, as JSON can hold them: floats are written and read without loss."""
        return asdict(self)

    def predict(self, probabilities_NL: Array) -> Array:
        """The predicted labels (N, L) bool. Raises ValueError for thresholds of another number of labels."""
        if self.k is not None:
            predicted = np.zeros(probabilities_NL.shape, dtype=bool)
            np.put_along_axis(predicted, order_labels(probabilities_NL)[:, : self.k], True, axis=1)
            return predicted
        if len(self.thresholds) not in (1, probabilities_NL.shape[1]):
            raise ValueError(f"{len(self.thresholds)} thresholds for {probabilities_NL.shape[1]} labels")
        scores = decision_scores(probabilities_NL, at_least_one=self.at_least_one)
        return np.asarray(scores >= np.asarray(self.thresholds))


def decision_scores(probabilities_NL: Array, *, at_least_one: bool) -> Array:
    """What thresholds are compared with (N, L) float64.

    With `at_least_one` the score of each row's most probable label is infinite.
    """
    scores = probabilities_NL.astype(np.float64)
    if at_least_one:
        scores[np.arange(len(scores)), scores.argmax(1)] = np.inf
    return scores


def order_labels(probabilities_NL: Array) -> Array:
    """Each row's labels (N, L) int64, the most probable first, of equal ones the lower."""
    return np.argsort(-probabilities_NL, axis=1, kind="stable")


def choose(
    probabilities: Tensor, targets: Targets, mode: Mode, metric: str, *, at_least_one: bool = False
) -> Decision:
    """The decision of that mode with the best figure on these rows, those of validation.

    `probabilities` (N, L) float, `targets` label rows; `metric` names the metric to optimise: one of
    `counts` itself, for any other it is micro-F1.
    A number is taken as it is. `global`: the best of all thresholds. `per_label`: see
    `choose_label_thresholds`. `top_k`: the best k up to the most labels that a row has. A threshold lies
    in the middle between two probabilities; of equally good ones the closest to one half wins, then the
    lower, and of equally good k the smallest. Without a true entry it is one half, or k = 1. Unknown entries
    are not counted.

    Raises ValueError for shapes that disagree.
    """
    p_NL, rows = array(probabilities), as_rows(targets)
    if p_NL.shape != (len(rows), rows.width):
        raise ValueError(f"probabilities {p_NL.shape} for targets {(len(rows), rows.width)}")
    if isinstance(mode, float | int):
        return Decision.fixed(mode, at_least_one=at_least_one)
    true_NL, known_NL = rows.dense().numpy() > 0, known_entries(rows)
    wanted = choice_metric(metric)
    if mode == "top_k":
        known_NL = np.ones(p_NL.shape, dtype=bool) if known_NL is None else known_NL
        return Decision("top_k", k=_best_k(p_NL, true_NL, known_NL, wanted))
    scores_NL = decision_scores(p_NL, at_least_one=at_least_one)
    if known_NL is not None:
        scores_NL[~known_NL] = UNKNOWN
    if mode == "global":
        one = global_threshold(SortedScores.of(scores_NL, true_NL), wanted)
        return Decision("global", (one,), at_least_one=at_least_one)
    found_L = choose_label_thresholds(scores_NL, true_NL, wanted)
    return Decision("per_label", tuple(found_L.tolist()), at_least_one=at_least_one)


def choice_metric(name: str) -> Metric:
    """The metric that thresholds are chosen by: the named one if it is of `counts`, else micro-F1."""
    metric = METRICS[name]
    return metric if metric.counts is not None else METRICS["micro_f1"]


def _best_k(p_NL: Array, true_NL: Array, known_NL: Array, metric: Metric) -> int:
    most = max(1, int(true_NL.sum(1).max(initial=1)))
    label_NK = order_labels(p_NL)[:, :most]
    right_NK, known_NK = (np.take_along_axis(each, label_NK, axis=1) for each in (true_NL, known_NL))
    n_labels, cells = p_NL.shape[1], int(known_NL.sum())
    value_K = []
    right_L, predicted_L = np.zeros(n_labels, dtype=np.int64), np.zeros(n_labels, dtype=np.int64)
    for label_N, right_N, known_N in zip(label_NK.T, right_NK.T, known_NK.T, strict=True):
        predicted_L = predicted_L + np.bincount(label_N[known_N], minlength=n_labels)
        right_L = right_L + np.bincount(label_N[right_N], minlength=n_labels)
        value_K.append(values_of(metric, Counts(right_L, predicted_L, true_NL.sum(0), cells)))
    return int(np.argmax(value_K)) + 1
