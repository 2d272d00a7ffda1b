"""Decisions: which labels a row of probabilities predicts.

    decision = choose(probabilities, targets, "global", "micro_f1")      # mlcl.evaluation.thresholds
    decision.predict(array(probabilities))                               # (N, L) bool
    evaluate("multi_label", test_probabilities, test_targets, decision)  # all metrics

Shapes: N rows, L labels.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal, Self

import numpy as np

from mlcl.evaluation.tasks import Array

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
