"""Exported models, which predict the labels of texts, images or vectors.

Shapes: M rows, O an encoder's output, C classes, L labels, A aspects.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from numbers import Integral, Real
from typing import Any

import numpy as np
import torch
from torch import Tensor

from mlcl.config import JobConfig
from mlcl.errors import UserError
from mlcl.evaluation import Decision
from mlcl.evaluation.tasks import Array, array
from mlcl.training.embeddings import Datastore
from mlcl.training.export.model_index import Index, PredictorName
from mlcl.training.input_reader import Content


class ExportedModel(ABC):
    """A trained network or a fitted baseline with its preprocessing and its label names; see `load_model`.

    `index` describes the model, `classes_` are the names of the columns of probabilities, which are ratings
    for a model with aspects, and `aspects_` are the names of the aspects. `store` has the training rows of a
    network.

    Example:
        >>> model = mlcl.load_model("model")
        >>> model.predict_proba(["fracture of the left arm"]).shape, len(model.classes_)
    """

    def __init__(self, index: Index, job: JobConfig, store: Datastore | None) -> None:
        self.index, self.job, self.store = index, job, store
        ratings = tuple(f"{value:g}" for value in index.space.scale)
        self.classes_: tuple[str, ...] = index.space.classes or ratings
        self.aspects_: tuple[str, ...] = index.space.aspects

    def predict(
        self,
        inputs: Sequence[Content],
        *,
        predictor: PredictorName | None = None,
        threshold: float | None = None,
        batch_size: int | None = None,
    ) -> Predictions:
        """Predicts labels.

        Args:
            inputs: Texts, images (encoded bytes, paths of files, or of Pillow) or vectors.
            predictor: The predictor, one of `index.predictors`; by default the best on validation.
            threshold: The least probability at which a label is predicted, for a model that predicts several
                labels; by default what was chosen on validation.
            batch_size: The number of rows of a batch; by default the job's.

        Raises:
            UserError: `inputs` is not a list, one of its entries cannot be read, or an argument is invalid.
        """
        check_threshold(self.index, threshold)
        probabilities = self.predict_proba(inputs, predictor=predictor, batch_size=batch_size)
        return decide(self.index, probabilities, self.predictor(predictor), threshold)

    def predict_proba(
        self,
        inputs: Sequence[Content],
        *,
        predictor: PredictorName | None = None,
        batch_size: int | None = None,
    ) -> Array:
        """Returns probabilities (M, C), (M, L) or (M, A, C); see `predict` for the arguments."""
        # Iterating over these would predict their characters, keys or names of columns.
        not_a_list = isinstance(inputs, str | bytes | Mapping) or hasattr(inputs, "columns")
        if not_a_list or not isinstance(inputs, Iterable):
            type_name = type(inputs).__name__
            raise UserError("not a list of texts, images or vectors", key="inputs", found=type_name)
        if batch_size is not None and (not isinstance(batch_size, Integral) or batch_size < 1):
            raise UserError("not a whole number of at least 1", key="batch_size", found=batch_size)
        inputs, predictor = list(inputs), self.predictor(predictor)
        size = batch_size or self.job.evaluation.batch_size
        parts = [
            self.probabilities(self.outputs(inputs[first : first + size]), predictor)
            for first in range(0, max(1, len(inputs)), size)
        ]
        return array(torch.cat(parts))

    def predictor(self, predictor: str | None) -> PredictorName:
        """Returns the name of a predictor, by default the best one. Raises UserError for an unknown one."""
        for name in self.index.predictors:
            if name == (predictor or self.index.best):
                return name
        allowed = list(self.index.predictors)
        raise UserError("this model has no such predictor", key="predictor", found=predictor, allowed=allowed)

    @abstractmethod
    def outputs(self, inputs: Sequence[Content], places: Sequence[str] | None = None) -> Tensor:
        """Computes the outputs (M, O) float32 of one batch; `places` are its rows' positions for messages."""

    @abstractmethod
    def probabilities(self, output_MO: Tensor, predictor: PredictorName) -> Tensor:
        """Computes a predictor's probabilities, on the CPU, from the outputs (M, O)."""


@dataclass(frozen=True)
class Predictions:
    """The predictions for M rows.

    `labels` has the class name of each row; with several labels a list of names, with aspects a dict from the
    name of each aspect to its rating. `columns` is a table by column: `label` and `probability`, whose values
    are lists if there are several labels; `label.ASPECT` and `probability.ASPECT` with aspects; and
    `label.LEVEL`, the predicted class's parent at a coarser level.
    """

    labels: Sequence[Any]
    probabilities: Array
    columns: Mapping[str, Sequence[Any]]

    def __len__(self) -> int:
        return len(self.labels)


def decide(
    index: Index, probabilities: Array, predictor: PredictorName, threshold: float | None = None
) -> Predictions:
    """Predicts the most probable class, the first of equal ones, or the labels that `label_decision` selects.

    The threshold must have passed `check_threshold`.
    """
    if index.task == "multi_label":
        return _predict_labels(index, probabilities, label_decision(index, predictor, threshold))
    if index.task == "aspects":
        return _predict_aspects(index, probabilities)
    best_M, probability_M = _pick_best(probabilities)
    labels = [index.space.classes[best] for best in best_M]
    columns: dict[str, list[Any]] = {"label": labels, "probability": probability_M.tolist()}
    for name, level in index.levels.items():
        parents = [level.parents[best] for best in best_M]
        columns[f"label.{name}"] = [None if parent < 0 else level.classes[parent] for parent in parents]
    return Predictions(labels, probabilities, columns)


def label_decision(index: Index, predictor: PredictorName, threshold: float | None) -> Decision:
    """Returns the rule that says which labels are predicted: at a threshold, or as chosen on validation."""
    decision = index.decisions[predictor]
    return decision if threshold is None else Decision.fixed(threshold, at_least_one=decision.at_least_one)


def check_threshold(index: Index, threshold: float | None) -> None:
    """Raises UserError if the threshold is outside 0 to 1, or the model does not predict several labels."""
    if threshold is None:
        return
    if index.task != "multi_label":
        problem = "is for several labels; this model predicts the most probable class"
        raise UserError(problem, key="threshold", found=threshold)
    if not isinstance(threshold, Real) or not 0 <= threshold <= 1:
        raise UserError("no probability", key="threshold", found=threshold, allowed="0 to 1")


def _predict_labels(index: Index, probability_ML: Array, decision: Decision) -> Predictions:
    rows = [np.flatnonzero(row_L) for row_L in decision.predict(probability_ML)]
    labels = [[index.space.classes[label] for label in row] for row in rows]
    values = [row_L[row].tolist() for row, row_L in zip(rows, probability_ML, strict=True)]
    return Predictions(labels, probability_ML, {"label": labels, "probability": values})


def _predict_aspects(index: Index, probability_MAC: Array) -> Predictions:
    best_MA, value_MA = _pick_best(probability_MAC)
    ratings = [f"{value:g}" for value in index.space.scale]
    columns: dict[str, list[Any]] = {}
    for column, aspect in enumerate(index.space.aspects):
        columns[f"label.{aspect}"] = [ratings[best] for best in best_MA[:, column]]
        columns[f"probability.{aspect}"] = value_MA[:, column].tolist()
    rows = zip(*(columns[f"label.{aspect}"] for aspect in index.space.aspects), strict=True)
    labels = [dict(zip(index.space.aspects, row, strict=True)) for row in rows]
    return Predictions(labels, probability_MAC, columns)


def _pick_best(probabilities: Array) -> tuple[Array, Array]:
    best = probabilities.argmax(-1)
    return best, np.take_along_axis(probabilities, best[..., None], -1)[..., 0]
