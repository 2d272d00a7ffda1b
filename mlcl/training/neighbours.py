"""The training rows as a datastore, shared out over the ranks: the search for neighbours, and their votes.

Shapes: N rows on all ranks, n of them on this one, M queries, B of a block of them, K neighbours, D columns,
O columns of an encoder's output, which begins with the embedding.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor

from mlcl.config import KnnConfig
from mlcl.evaluation import (
    Neighbours,
    ProbeRows,
    Setting,
    Targets,
    Task,
    blend,
    knn_probabilities,
    neighbour_overlap,
    retrieve,
)
from mlcl.evaluation.retrieval import available, merge
from mlcl.labels import LabelRows
from mlcl.training.classifier import Labels
from mlcl.training.context import ONE_PROCESS, Context

QUERIES_AT_ONCE = 1_024
"""Queries whose neighbours the ranks exchange at once: 12 K bytes for each query and rank."""
NO_ROW = torch.iinfo(torch.int64).max
"""The row number of a neighbour that a rank with few rows does not have; its distance is infinite."""


def shares(rows: int, ranks: int) -> list[range]:
    """Consecutive runs of rows, one for each rank, whose lengths differ by one at most."""
    cuts = [rows * rank // ranks for rank in range(ranks + 1)]
    return [range(first, stop) for first, stop in pairwise(cuts)]


@dataclass(frozen=True)
class RankRows:
    """Of N rows those of this rank, `values` (n, D), of which the first has the number `first`.

    The ranks hold consecutive runs of rows; one process holds all of them.
    """

    values: Tensor
    first: int = 0
    context: Context = ONE_PROCESS

    @property
    def numbers(self) -> range:
        """The numbers of this rank's rows."""
        return range(self.first, self.first + len(self.values))

    def for_probe(self, targets: Targets) -> ProbeRows:
        """The rows as the linear probe takes them, with the targets of all N rows."""
        total = None if self.context.world_size == 1 else self.context.sum
        return ProbeRows(self.values, targets, self.first, total)

    def retrieve(self, queries_MD: Tensor, k: int, rows: int) -> Neighbours:
        """The k nearest of all ranks' rows, of which there are `rows`, to every query.

        Every rank must ask, with the same queries: each searches its own rows, and all get the merged
        neighbours. They equal one search in all rows to the last bit.
        """
        if self.context.world_size == 1:
            return retrieve(self.values, queries_MD, k)
        k = available(rows, k)
        found = [self._merged(block_BD, k) for block_BD in torch.split(queries_MD, QUERIES_AT_ONCE)]
        return Neighbours(
            torch.cat([each.distance for each in found]), torch.cat([each.index for each in found])
        )

    def _merged(self, queries_BD: Tensor, k: int) -> Neighbours:
        """The k nearest (B, k) of all ranks' rows."""
        own, queries, ranks = self._own(queries_BD, k), len(queries_BD), self.context.world_size
        if not queries:
            return own
        distances = torch.split(self.context.rows(own.distance, [queries] * ranks), queries)
        indices = torch.split(self.context.rows(own.index, [queries] * ranks), queries)
        return merge([Neighbours(*found) for found in zip(distances, indices, strict=True)], k)

    def _own(self, queries_BD: Tensor, k: int) -> Neighbours:
        """The nearest of this rank's rows, always (B, k): a rank may have fewer rows than k."""
        distance = torch.full((len(queries_BD), k), math.inf)
        index = torch.full((len(queries_BD), k), NO_ROW)
        if len(self.values):
            found = retrieve(self.values, queries_BD, min(k, len(self.values)))
            distance[:, : found.distance.shape[1]] = found.distance
            index[:, : found.index.shape[1]] = found.index + self.first
        return Neighbours(distance, index)


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
