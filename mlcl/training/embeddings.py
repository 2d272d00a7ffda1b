"""Computes embeddings of whole splits, each rank a part, and finds neighbours among the training rows.

Shapes: N rows on all ranks, n of them on this one, M queries, B queries of a block, b rows that are read, K
neighbours, D columns of an embedding, L labels, O columns of an encoder's output: the embedding, and for some
encoders one logit per label after it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import torch
from torch import Tensor, nn

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
from mlcl.evaluation.retrieval import count_available, merge
from mlcl.labels import LabelRows
from mlcl.training.batches import Rows
from mlcl.training.classifier import Labels
from mlcl.training.context import ONE_PROCESS, Context
from mlcl.training.events import Diverged

QUERIES_AT_ONCE = 1_024
"""The number of queries whose neighbours the ranks exchange at once: 12 K bytes for each query and rank."""
NO_ROW = torch.iinfo(torch.int64).max
"""The row number that fills up the neighbours of a rank with fewer than K rows; its distance is infinite."""


def shares(rows: int, ranks: int) -> list[range]:
    """Splits rows into consecutive ranges, one per rank, whose lengths differ by at most one."""
    bounds = [rows * rank // ranks for rank in range(ranks + 1)]
    return [range(first, stop) for first, stop in pairwise(bounds)]


@dataclass(frozen=True)
class RankRows:
    """The rows (n, D) that this rank holds of a matrix with N rows, which is split over the ranks.

    They are consecutive rows, of which the first has the number `first`. A single process holds all N rows.
    """

    values: Tensor
    first: int = 0
    context: Context = ONE_PROCESS

    @property
    def numbers(self) -> range:
        """The numbers of this rank's rows in the matrix of N rows."""
        return range(self.first, self.first + len(self.values))

    def for_probe(self, targets: Targets) -> ProbeRows:
        """Returns the rows in the form that the linear probe takes, with the targets of all N rows."""
        total = None if self.context.world_size == 1 else self.context.sum
        return ProbeRows(self.values, targets, self.first, total, self.context.device)

    def retrieve(self, queries_MD: Tensor, k: int, rows: int) -> Neighbours:
        """Finds the k nearest of all ranks' rows for every query (M, D); `rows` is the number of all rows N.

        Every rank must call this with the same queries. Each rank searches its own rows, and all ranks get
        the merged neighbours, which equal the result of one search over all rows, bit by bit.
        """
        if self.context.world_size == 1:
            return retrieve(self.values, queries_MD, k)
        k = count_available(rows, k)
        blocks = [
            self._merge_neighbours(block_BD, k) for block_BD in torch.split(queries_MD, QUERIES_AT_ONCE)
        ]
        distance_MK, index_MK = (
            torch.cat(part) for part in zip(*((block.distance, block.index) for block in blocks), strict=True)
        )
        return Neighbours(distance_MK, index_MK)

    def _merge_neighbours(self, queries_BD: Tensor, k: int) -> Neighbours:
        nearest, n_queries, n_ranks = (
            self._find_own_neighbours(queries_BD, k),
            len(queries_BD),
            self.context.world_size,
        )
        if not n_queries:
            return nearest
        gathered = (
            self.context.rows(values, [n_queries] * n_ranks) for values in (nearest.distance, nearest.index)
        )
        parts = zip(*(torch.split(tensor, n_queries) for tensor in gathered), strict=True)
        return merge([Neighbours(*part) for part in parts], k)

    def _find_own_neighbours(self, queries_BD: Tensor, k: int) -> Neighbours:
        distance = torch.full((len(queries_BD), k), math.inf)
        index = torch.full((len(queries_BD), k), NO_ROW)
        if len(self.values):
            nearest = retrieve(self.values, queries_BD, min(k, len(self.values)))
            distance[:, : nearest.distance.shape[1]] = nearest.distance
            index[:, : nearest.index.shape[1]] = nearest.index + self.first
        return Neighbours(distance, index)


@dataclass(frozen=True)
class SplitEncoder:
    """Encodes splits in batches, each rank a part of the rows; leaves the encoder in evaluation mode."""

    encoder: nn.Module
    batch_size: int
    precision: str
    context: Context

    def embeddings(self, rows: Rows) -> RankRows:
        """Returns float32 embeddings (n, D) of this rank's rows on the CPU. Raises Diverged if not finite."""
        return self._encode_share(rows, self._dim)

    def outputs(self, rows: Rows) -> Tensor:
        """Returns float32 outputs (N, O) of all rows on every rank's CPU. Raises Diverged if not finite."""
        counts = [len(share) for share in shares(len(rows), self.context.world_size)]
        return self.context.rows(
            self._encode_share(rows, self._dim + label_logits(self.encoder)).values, counts
        )

    @torch.no_grad()
    def label_vectors(self, rows: Rows, indices_B: Tensor) -> Tensor:
        """Returns the float32 label vectors (B, L, D) of the rows `indices_B`, on the device."""
        self.encoder.eval()
        with self.context.autocast(self.precision):
            vectors: Tensor = self.encoder.label_vectors(**rows.plain_inputs(indices_B, self.context.device))  # type: ignore[operator]
        return vectors

    @property
    def _dim(self) -> int:
        return int(self.encoder.dim)  # type: ignore[arg-type]

    @torch.no_grad()
    def _encode_share(self, rows: Rows, columns: int) -> RankRows:
        self.encoder.eval()
        own_range = shares(len(rows), self.context.world_size)[self.context.rank]
        output_nO = torch.empty(len(own_range), columns)
        for first in range(0, len(own_range), self.batch_size):
            batch = own_range[first : first + self.batch_size]
            inputs = rows.plain_inputs(torch.arange(batch.start, batch.stop), self.context.device)
            with self.context.autocast(self.precision):
                output: Tensor = self.encoder(**inputs)
            output_nO[first : first + len(batch)] = output[:, :columns]
        check_finite(output_nO, "the encoder's embeddings", self.context)
        return RankRows(output_nO, own_range.start, self.context)


def check_finite(values: Tensor, subject: str, context: Context) -> None:
    """Raises Diverged, with `subject` in the message, on all ranks if a value on any rank is not finite."""
    if context.any(not bool(torch.isfinite(values).all())):
        raise Diverged(f"{subject} are not finite")


def label_logits(encoder: nn.Module) -> int:
    """Returns the number of logits that follow the embedding in an encoder's output; 0 if there are none."""
    return int(getattr(encoder, "label_logits", 0))


def setting_of(config: KnnConfig) -> Setting:
    """Returns the setting of the neighbours (k, lambda, temperature) in a job's section `evaluation.knn`."""
    return Setting(config.k, config.lambda_, config.temperature)


@dataclass(frozen=True)
class Datastore:
    """The embeddings of this rank's training rows, and the labels of all N training rows.

    Source: kNN-MLTC section 3.2.
    """

    rows: RankRows
    labels: Labels
    task: Task
    n_classes: int

    def retrieve(self, queries_MO: Tensor, k: int) -> Neighbours:
        """Finds the k nearest of all N rows for every query, by the embeddings in the outputs (M, O).

        Every rank must call this with the same queries.
        """
        return self.rows.retrieve(queries_MO[:, : self.rows.values.shape[1]], k, len(self.labels))

    def votes(self, neighbours: Neighbours, setting: Setting) -> Tensor:
        """Returns the probabilities according to the neighbours' votes alone."""
        return knn_probabilities(
            neighbours, self.labels, self.task, setting.k, setting.temperature, self.n_classes
        )

    def blend(self, neighbours: Neighbours, model: Tensor, setting: Setting) -> Tensor:
        """Blends the neighbours' votes with the model's probabilities of the same queries."""
        return blend(self.votes(neighbours, setting), model, setting.lambda_)

    def overlap(self, neighbours: Neighbours, targets: Labels, k: int) -> float:
        """Returns `neighbour_overlap` of the k nearest and the queries' targets; NaN unless multi-label."""
        if not (isinstance(self.labels, LabelRows) and isinstance(targets, LabelRows)):
            return math.nan
        return neighbour_overlap(neighbours, self.labels, targets, k)


NUMBERS_KEPT = 2**29
"""The largest size n L D of label vectors that are kept on the device, and not computed at each reading."""


def label_layer(encoder: nn.Module) -> nn.Linear | None:
    """Returns the encoder's own layer on label vectors; None for an encoder without one."""
    layer = getattr(encoder, "label_layer", None)
    assert layer is None or isinstance(layer, nn.Linear)
    return layer


@dataclass(frozen=True)
class LabelVectors:
    """The label vectors of the consecutive rows with the numbers `range` in `rows`, as features of a probe.

    Up to `NUMBERS_KEPT` numbers are kept; larger label vectors are computed anew at each reading, since those
    of 50,000 texts and 8,000 labels would fill 1 TB. They are float32 on the encoder's device, without a
    gradient.
    """

    encoder: SplitEncoder
    rows: Rows
    range: range

    @property
    def shape(self) -> tuple[int, int, int]:
        """The shape (n, L, D)."""
        layer = label_layer(self.encoder.encoder)
        assert layer is not None
        return (len(self.range), layer.out_features, layer.in_features)

    @property
    def device(self) -> torch.device:
        """The encoder's device."""
        return self.encoder.context.device

    def __getitem__(self, rows_b: Tensor, /) -> Tensor:
        """Returns the label vectors (b, L, D) of the rows `rows_b`, counted from the first row of `range`."""
        fits = math.prod(self.shape) <= NUMBERS_KEPT
        return self._all_vectors[rows_b.to(self.device)] if fits else self._encode_rows(rows_b)

    @cached_property
    def _all_vectors(self) -> Tensor:
        return self._encode_rows(torch.arange(len(self.range)))

    def _encode_rows(self, rows_b: Tensor) -> Tensor:
        chunks = torch.split(rows_b + self.range.start, self.encoder.batch_size)
        return torch.cat([self.encoder.label_vectors(self.rows, part) for part in chunks])
