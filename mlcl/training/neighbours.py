"""The training embeddings as a datastore: votes, predictions, and the search over (k, lambda, tau).

Shapes: N datastore rows, M queries, D embedding.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor

from mlcl.config import KnnConfig
from mlcl.evaluation import Neighbours, Setting, Task, blend, knn_probabilities, retrieve
from mlcl.training.objective import Labels

Predictor = Callable[[Tensor], Tensor]
"""From embeddings (M, D) to probabilities."""


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

    def retrieve(self, queries_MD: Tensor, k: int) -> Neighbours:
        """The k nearest of every query."""
        return retrieve(self.embedding_ND, queries_MD, k)

    def predictor(self, model: Predictor, setting: Setting) -> Predictor:
        """The blend of neighbours and model under one setting."""

        def predict(queries_MD: Tensor) -> Tensor:
            votes = self.votes(self.retrieve(queries_MD, setting.k), setting)
            return blend(votes, model(queries_MD), setting.lambda_)

        return predict
