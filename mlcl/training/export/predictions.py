"""Predictions: from probabilities to the names of classes, labels or ratings.

Shapes: M rows, C classes, L labels, A aspects.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from mlcl.errors import UserError
from mlcl.evaluation import Decision
from mlcl.evaluation.tasks import Array
from mlcl.training.export.model_index import Index, Way


@dataclass(frozen=True)
class Predictions:
    """The predictions of M rows.

    `labels`: a class name a row; with several labels a list of names; with aspects a rating by aspect.
    `probabilities`: (M, C), (M, L) or (M, A, C). `columns`: the same as a table, column by column: `label`
    and `probability`, lists of them with several labels, `label.ASPECT` and `probability.ASPECT` with
    aspects; and `label.LEVEL`, the coarser class that a predicted one belongs to.
    """

    labels: Sequence[Any]
    probabilities: Array
    columns: Mapping[str, Sequence[Any]]

    def __len__(self) -> int:
        return len(self.labels)


def decide(index: Index, probabilities: Array, way: Way, threshold: float | None = None) -> Predictions:
    """The most probable class, or the labels from the probability `threshold` on, by default the way's own.

    Of equally probable classes the first is predicted, as in evaluation. Raises UserError as
    `check_threshold`.
    """
    check_threshold(index, threshold)
    if index.task == "multi_label":
        return _several(index, probabilities, label_decision(index, way, threshold))
    if index.task == "aspects":
        return _aspects(index, probabilities)
    best_M, probability_M = _best(probabilities)
    labels = [index.space.classes[best] for best in best_M]
    columns: dict[str, list[Any]] = {"label": labels, "probability": probability_M.tolist()}
    for name, level in index.levels.items():
        columns[f"label.{name}"] = [
            None if level.parents[best] < 0 else level.classes[level.parents[best]] for best in best_M
        ]
    return Predictions(labels, probabilities, columns)


def label_decision(index: Index, way: Way, threshold: float | None) -> Decision:
    """From a given threshold on, or as validation chose for the way."""
    return index.decision(way) if threshold is None else Decision.fixed(threshold)


def check_threshold(index: Index, threshold: float | None) -> None:
    """Raises UserError for a threshold that is no probability, and for any where a row has one class."""
    if threshold is None:
        return
    if index.task != "multi_label":
        raise UserError(
            "is for several labels; this model predicts the most probable class",
            key="threshold",
            found=threshold,
        )
    if not 0 <= threshold <= 1:
        raise UserError("no probability", key="threshold", found=threshold, allowed="0 to 1")


def _several(index: Index, probability_ML: Array, decision: Decision) -> Predictions:
    rows = [np.flatnonzero(row_L) for row_L in decision.predict(probability_ML)]
    labels = [[index.space.classes[label] for label in row] for row in rows]
    values = [row_L[row].tolist() for row, row_L in zip(rows, probability_ML, strict=True)]
    return Predictions(labels, probability_ML, {"label": labels, "probability": values})


def _aspects(index: Index, probability_MAC: Array) -> Predictions:
    best_MA, value_MA = _best(probability_MAC)
    ratings = [f"{value:g}" for value in index.space.scale]
    columns: dict[str, list[Any]] = {}
    for place, aspect in enumerate(index.space.aspects):
        columns[f"label.{aspect}"] = [ratings[best] for best in best_MA[:, place]]
        columns[f"probability.{aspect}"] = value_MA[:, place].tolist()
    rows = zip(*(columns[f"label.{aspect}"] for aspect in index.space.aspects), strict=True)
    labels = [dict(zip(index.space.aspects, row, strict=True)) for row in rows]
    return Predictions(labels, probability_MAC, columns)


def _best(probabilities: Array) -> tuple[Array, Array]:
    best = probabilities.argmax(-1)
    return best, np.take_along_axis(probabilities, best[..., None], -1)[..., 0]
