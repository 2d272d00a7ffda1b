"""The embeddings of the training rows as a datastore for nearest neighbours, shared out over the ranks.

Shapes: N datastore rows, n of them on this rank, M queries, B of a block of them, K neighbours, D embedding,
O columns of an encoder's output, which begins with the embedding.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

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
from mlcl.evaluation.neighbour_merge import merge
from mlcl.evaluation.retrieval import available
from mlcl.labels import LabelRows
from mlcl.training.context import ONE_PROCESS, Context
from mlcl.training.objective import Labels

QUERIES_AT_ONCE = 1_024
"""Queries whose neighbours the ranks exchange at once: 12 K bytes for each query and rank."""
NO_ROW = torch.iinfo(torch.int64).max
"""The row number of a neighbour that a rank with few rows does not have; its distance is infinite."""


def setting_of(config: KnnConfig) -> Setting:
    """The job's own (k, lambda, tau)."""
    return Setting(config.k, config.lambda_, config.temperature)


@dataclass(frozen=True)
class Datastore:
    """Embeddings of the training rows, with their labels. Source: kNN-MLTC section 3.2.

    `embedding_ND` are all rows, or with several ranks the rows of this one, of which `first` is the number of
    the first; `labels` are those of all N rows.
    """

    embedding_ND: Tensor
    labels: Labels
    task: Task
    n_classes: int
    first: int = 0
    context: Context = ONE_PROCESS

    def retrieve(self, queries_MO: Tensor, k: int) -> Neighbours:
        """The k nearest of all N rows to every query; columns after the embedding are left out.

        With several ranks each must ask, with the same queries: it searches its own rows, and every rank gets
        the merged neighbours. To the last bit they are those of one search in all rows.
        """
        queries_MD = queries_MO[:, : self.embedding_ND.shape[1]]
        if self.context.world_size == 1:
            return retrieve(self.embedding_ND, queries_MD, k)
        k = available(len(self.labels), k)
        found = [self._merged(block, k) for block in queries_MD.split(QUERIES_AT_ONCE)]
        distance, index = ([getattr(each, name) for each in found] for name in ("distance", "index"))
        return Neighbours(torch.cat(distance), torch.cat(index))

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

    def _merged(self, queries_BD: Tensor, k: int) -> Neighbours:
        """The k nearest (B, k) of all ranks' rows."""
        own = self._own(queries_BD, k)
        counts = [len(queries_BD)] * self.context.world_size
        distances = self.context.rows(own.distance, counts).split(len(queries_BD))
        indices = self.context.rows(own.index, counts).split(len(queries_BD))
        return merge([Neighbours(*found) for found in zip(distances, indices, strict=True)], k)

    def _own(self, queries_BD: Tensor, k: int) -> Neighbours:
        """The nearest of this rank's rows, always (B, k): a rank may have fewer rows than k."""
        rows = len(self.embedding_ND)
        distance, index = torch.empty(len(queries_BD), 0), torch.empty(len(queries_BD), 0, dtype=torch.int64)
        if rows:
            found = retrieve(self.embedding_ND, queries_BD, min(k, rows))
            distance, index = found.distance, found.index + self.first
        missing = (0, k - distance.shape[1])
        return Neighbours(
            functional.pad(distance, missing, value=math.inf), functional.pad(index, missing, value=NO_ROW)
        )
