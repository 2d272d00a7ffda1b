"""Decisions: rules, chosen on validation, that say which labels are predicted from a row's probabilities.

Shapes: N rows, L labels, K numbers of labels.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np
from torch import Tensor
from typing_extensions import Self

from mlcl.evaluation.metric import METRICS, Metric
from mlcl.evaluation.predictions import Counts
from mlcl.evaluation.tasks import Array, Targets, array, as_rows, check_probabilities, known_entries
from mlcl.evaluation.thresholds import (
    UNKNOWN,
    SortedScores,
    global_threshold,
    label_thresholds,
    signed_values,
)

Mode = float | Literal["global", "per_label", "top_k"]
"""A given threshold, or the kind of rule to choose on validation: one threshold for all labels (`global`),
one for each label (`per_label`), or a number of labels (`top_k`)."""


@dataclass(frozen=True)
class Decision:
    """A rule that says which labels are predicted.

    Label l of row n is predicted if p_nl >= t_l, compared in float64; with `k` the k most probable labels of
    each row are predicted instead. Of equally probable labels the one with the lower index is preferred.

    Attributes:
        mode: How the rule was chosen: `fixed`, `global`, `per_label` or `top_k`.
        thresholds: One threshold for all labels, or L of them; empty if `k` is set.
        k: The number of labels that are predicted for each row.
        at_least_one: Whether the most probable label of every row is always predicted, too.
    """

    mode: Literal["fixed", "global", "per_label", "top_k"]
    thresholds: tuple[float, ...] = ()
    k: int | None = None
    at_least_one: bool = False

    @classmethod
    def fixed(cls, threshold: float, *, at_least_one: bool = False) -> Self:
        """Returns a decision with one given threshold for all labels.

        The threshold is rounded to float32, the dtype of the classifiers' outputs.
        """
        return cls("fixed", (float(np.float32(threshold)),), at_least_one=at_least_one)

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> Self:
        """Returns the decision whose `to_json` returned `document`."""
        return cls(**{**document, "thresholds": tuple(document["thresholds"])})

    def to_json(self) -> dict[str, Any]:
        """Returns the fields as a dict that can be written as JSON without loss."""
        return asdict(self)

    def predict(self, probabilities_NL: Array) -> Array:
        """Returns whether each label is predicted (N, L).

        Raises ValueError if the number of thresholds is neither 1 nor L.
        """
        if self.k is not None:
            predicted = np.zeros(probabilities_NL.shape, dtype=bool)
            np.put_along_axis(predicted, _order_labels(probabilities_NL)[:, : self.k], True, axis=1)
            return predicted
        if len(self.thresholds) not in (1, probabilities_NL.shape[1]):
            raise ValueError(f"{len(self.thresholds)} thresholds for {probabilities_NL.shape[1]} labels")
        scores = _threshold_scores(probabilities_NL, at_least_one=self.at_least_one)
        return np.asarray(scores >= np.asarray(self.thresholds))


def choose(
    probabilities: Tensor, targets: Targets, mode: Mode, metric: str, *, at_least_one: bool = False
) -> Decision:
    """Chooses the decision that has the best value of a metric on these rows, which are validation rows.

    A threshold lies in the middle between two probabilities; of equally good thresholds the one closest to
    one half wins, then the lower one, and of equally good k the smallest. If there is no true entry, the
    threshold is one half, or k is 1. Unknown entries are not counted.

    Args:
        probabilities: Probabilities (N, L), float.
        targets: The true labels, as label rows.
        mode: A number is the threshold itself. `global` takes the best of all thresholds, `per_label` the
            thresholds of `label_thresholds`, `top_k` the best k up to the largest number of labels of a row.
        metric: The name of the metric to optimise; if the metric has no `counts`, micro-F1 is optimised.
        at_least_one: Whether the most probable label of every row is always predicted, too.

    Raises:
        ValueError: Probabilities are not within 0 and 1, their shape is not that of the targets, or the mode
            is unknown.

    Example:
        >>> p, rows = torch.tensor([[0.875, 0.25], [0.5, 0.125]]), LabelRows.from_lists([[0], [0]], 2)
        >>> decision = choose(p, rows, "global", "micro_f1")
        >>> decision.thresholds
        (0.375,)
        >>> evaluate("multi_label", p, rows, decision)["micro_f1"]
        1.0
    """
    p_NL, rows = array(probabilities), as_rows(targets)
    if p_NL.shape != (len(rows), rows.width):
        raise ValueError(f"probabilities {p_NL.shape} for targets {(len(rows), rows.width)}")
    check_probabilities(p_NL)
    if isinstance(mode, float | int) and not isinstance(mode, bool) and not np.isnan(mode):
        return Decision.fixed(mode, at_least_one=at_least_one)
    if mode not in ("global", "per_label", "top_k"):
        raise ValueError(f"unknown threshold {mode!r}; allowed: a number, global, per_label, top_k")
    true_NL, known_NL = rows.dense().numpy() > 0, known_entries(rows)
    optimised_metric = METRICS[metric] if METRICS[metric].counts is not None else METRICS["micro_f1"]
    if mode == "top_k":
        known_NL = np.ones(p_NL.shape, dtype=bool) if known_NL is None else known_NL
        return Decision("top_k", k=_best_k(p_NL, true_NL, known_NL, optimised_metric))
    scores_NL = _threshold_scores(p_NL, at_least_one=at_least_one)
    if known_NL is not None:
        scores_NL[~known_NL] = UNKNOWN
    if mode == "global":
        threshold = global_threshold(SortedScores.of(scores_NL, true_NL), optimised_metric)
        return Decision("global", (threshold,), at_least_one=at_least_one)
    threshold_L = label_thresholds(scores_NL, true_NL, optimised_metric)
    return Decision("per_label", tuple(threshold_L.tolist()), at_least_one=at_least_one)


def _threshold_scores(probabilities_NL: Array, *, at_least_one: bool) -> Array:
    """Returns float64 scores (N, L) for thresholds; with `at_least_one` a row's best label has infinity."""
    scores = probabilities_NL.astype(np.float64)
    if at_least_one:
        scores[np.arange(len(scores)), scores.argmax(1)] = np.inf
    return scores


def _order_labels(probabilities_NL: Array) -> Array:
    """Returns the label indices of each row (N, L) int64, most probable first; ties by ascending index."""
    return np.argsort(-probabilities_NL, axis=1, kind="stable")


def _best_k(p_NL: Array, true_NL: Array, known_NL: Array, metric: Metric) -> int:
    k_max = max(1, int(true_NL.sum(1).max(initial=1)))
    label_NK = _order_labels(p_NL)[:, :k_max]
    right_NK, known_NK = (np.take_along_axis(mask_NL, label_NK, axis=1) for mask_NL in (true_NL, known_NL))
    n_labels, cells = p_NL.shape[1], int(known_NL.sum())
    value_K = []
    right_L, predicted_L = np.zeros(n_labels, dtype=np.int64), np.zeros(n_labels, dtype=np.int64)
    for label_N, right_N, known_N in zip(label_NK.T, right_NK.T, known_NK.T, strict=True):
        predicted_L = predicted_L + np.bincount(label_N[known_N], minlength=n_labels)
        right_L = right_L + np.bincount(label_N[right_N], minlength=n_labels)
        value_K.append(signed_values(metric, Counts(right_L, predicted_L, true_NL.sum(0), cells)))
    return int(np.argmax(value_K)) + 1
