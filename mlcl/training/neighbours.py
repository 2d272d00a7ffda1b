"""The embeddings of the training rows as a datastore: votes of the nearest, and their blend with a model.

Shapes: N datastore rows, M queries, K neighbours, O columns of an encoder's output, which begins with the
embedding.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from torch import Tensor

from mlcl.config import KnnConfig
from mlcl.evaluation import Neighbours, Setting, Task, blend, knn_probabilities, neighbour_overlap
from mlcl.labels import LabelRows
from mlcl.training.classifier import Labels
from mlcl.training.rank_rows import RankRows


def setting_of(config: KnnConfig) -> Setting:
    """The job's own (k, lambda, tau)."""
    return Setting(config.k, config.lambda_, config.temperature)


@dataclass(frozen=True)
class Datastore:
    """Embeddings of the N training rows, and their labels. Source: kNN-MLTC section 3.2.

    With several ranks each has the embeddings of its own rows and the labels of all.
    """

    rows: RankRows
    labels: Labels
    task: Task
    n_classes: int

    def retrieve(self, queries_MO: Tensor, k: int) -> Neighbours:
        """The k nearest of all N rows to every query; columns after the embedding are left out.

        With several ranks each must ask, with the same queries.
        """
        return self.rows.retrieve(queries_MO[:, : self.rows.values.shape[1]], k, len(self.labels))

    def votes(self, neighbours: Neighbours, setting: Setting) -> Tensor:
        """The neighbours' prediction alone."""
        return knn_probabilities(
            neighbours, self.labels, self.task, setting.k, setting.temperature, self.n_classes
        )

    def blended(self, neighbours: Neighbours, model: Tensor, setting: Setting) -> Tensor:
        """The neighbours' prediction blended with the model's probabilities of the same queries."""
        return blend(self.votes(neighbours, setting), model, setting.lambda_)

    def overlap(self, neighbours: Neighbours, targets: Labels, k: int) -> float:
        """Share of the k neighbours' labels that are the query's own; NaN unless the task is multi-label."""
        if not (isinstance(self.labels, LabelRows) and isinstance(targets, LabelRows)):
            return math.nan
        return neighbour_overlap(neighbours, self.labels, targets, k)
