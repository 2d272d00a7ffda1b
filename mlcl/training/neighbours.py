"""The training embeddings as a datastore: votes, predictions, and the search over (k, lambda, tau).

Shapes: N datastore rows, M queries, D embedding, O an encoder's output, which begins with the embedding.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor

from mlcl.config import KnnConfig
from mlcl.evaluation import (
    Neighbours,
    Setting,
    Task,
    blend,
    knn_probabilities,
    neighbour_overlap,
    retrieve,
)
from mlcl.labels import LabelRows
from mlcl.training.objective import Labels

Predictor = Callable[[Tensor], Tensor]
"""From outputs of the encoder (M, O) to probabilities."""


def setting_of(config: KnnConfig) -> Setting:
    """The job's own (k, lambda, tau)."""
    return Setting(config.k, config.lambda_, config.temperature)


@dataclass(frozen=True)
class Datastore:
    """Embeddings of the samples that were trained on, with their labels. Source: kNN-MLTC section 3.2."""

    embedding_ND: Tensor
    labels: Labels
    task: Task
    n_classes: int

    def votes(self, neighbours: Neighbours, setting: Setting) -> Tensor:
        """The neighbours' prediction alone."""
        return knn_probabilities(
            neighbours, self.labels, self.task, setting.k, setting.temperature, self.n_classes
        )

    def retrieve(self, queries_MO: Tensor, k: int) -> Neighbours:
        """The k nearest of every query; columns after the embedding are left out."""
        return retrieve(self.embedding_ND, queries_MO[:, : self.embedding_ND.shape[1]], k)

    def overlap(self, queries_MO: Tensor, targets: Labels, k: int) -> float:
        """Share of the k neighbours' labels that are the query's own; NaN unless the task is multi-label."""
        if not (isinstance(self.labels, LabelRows) and isinstance(targets, LabelRows)):
            return math.nan
        return neighbour_overlap(self.retrieve(queries_MO, k), self.labels, targets, k)

    def predictor(self, model: Predictor, setting: Setting) -> Predictor:
        """The blend of neighbours and model under one setting."""

        def predict(queries_MO: Tensor) -> Tensor:
            votes = self.votes(self.retrieve(queries_MO, setting.k), setting)
            return blend(votes, model(queries_MO), setting.lambda_)

        return predict
