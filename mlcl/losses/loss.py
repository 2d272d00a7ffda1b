"""The module of a loss: checks its input, gathers rows, computes the anchors' terms and reduces them.

Shapes: N rows of this process (its anchors), B rows of all processes (the candidates), D embedding, L labels.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any, Literal, get_args

import torch
from torch import Tensor, nn

from mlcl.losses.batch import Group, LossRows, own_batch, whole_batches, world
from mlcl.losses.dense import anchor_terms, constrained_terms
from mlcl.losses.engine import disable_compile, small_sum, tiled_sum
from mlcl.losses.gradients import LossPart
from mlcl.losses.labels import (
    Labels,
    RuleLabels,
    check_shapes,
    check_views,
    check_width,
    classes_as_rows,
    to_rule,
)
from mlcl.losses.queue import Queue
from mlcl.losses.similarities import Candidates, FloatProducts, Products
from mlcl.losses.spec import LossSpec, unknown_name
from mlcl.losses.stats import LossStats
from mlcl.losses.temperature import Temperature
from mlcl.losses.weights.base import Number
from mlcl.unit_rows import unit_rows

Reduction = Literal["mean", "sum", "mean_valid", "none"]
Engine = Literal["auto", "tiled", "dense"]
SMALL = 256
"""The largest number of rows for which the engine `auto` takes W as a matrix, if there is one process.

For so few rows a matrix is faster than closed forms.
"""

logger = logging.getLogger(__name__)


class ContrastiveLoss(nn.Module):
    """A contrastive loss with the terms L_i = sum_p W_ip (-log p_ip) of the anchors i.

    `spec` defines the weights W, and p_ip is the softmax of the similarities of i with all candidates.
    Build it with `build_loss`, which documents the arguments.

    Example:
        >>> loss = build_loss("supcon", temperature=0.1)
        >>> value = loss(torch.randn(8, 16), torch.tensor([0, 1, 2, 3, 0, 1, 2, 3]))
    """

    def __init__(
        self,
        spec: LossSpec,
        temperature: Temperature,
        *,
        reduction: Reduction = "mean",
        normalize: bool = False,
        gather: bool = False,
        group: Group | None = None,
        engine: Engine = "auto",
        products: FloatProducts = "exact",
        prototypes: tuple[int, int] | None = None,
        queue: int | None = None,
        options: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__()
        _check_word("reduction", reduction, get_args(Reduction))
        _check_word("engine", engine, get_args(Engine))
        _check_word("products", products, get_args(FloatProducts))
        for name, flag in (("normalize", normalize), ("gather", gather)):
            if not isinstance(flag, bool):
                raise ValueError(f"{name} must be True or False; found: {flag!r}")
        if engine == "tiled" and reduction == "none":
            raise ValueError("reduction none has no tiled engine; allowed: dense, auto")
        if engine == "tiled" and spec.closed is None:
            raise ValueError(f"{spec.name} has no closed form for the tiled engine; allowed: dense, auto")
        self.spec = spec
        self.options = spec.resolve(options or {})
        self._arguments = spec.arguments(self.options, prototypes=prototypes is not None)
        self.temperature = temperature
        self.reduction = reduction
        self.normalize = normalize
        self.gather = gather
        self.group = group
        self.engine = engine
        self.products = products
        self.prototypes = _init_prototypes(spec, prototypes)
        if queue is not None and not spec.queue:
            raise ValueError(f"{spec.name} takes no queue; found: {queue}; allowed: None")
        self.queue = None if queue is None else Queue(queue)
        self._stats: LossStats | None = None
        if spec.closed is None:
            _warn_dense(spec.name)

    @property
    def stats(self) -> LossStats | None:
        """Diagnostics of the last call, computed when they are read; None before the first call."""
        return self._stats

    @disable_compile
    def forward(
        self,
        embeddings_ND: Tensor,
        labels: Labels | None = None,
        sample_ids: Tensor | None = None,
        *,
        rows: LossRows | None = None,
    ) -> Tensor:
        """Computes the reduced loss.

        Args:
            embeddings_ND: (N, D) floating.
            labels: The form depends on `spec.labels`. class: (N,) integers, -1 missing. multi_label:
                LabelRows, multi-hot (N, L), or class (N,) read as one-hot. ratings: (N, A) >= 0, 0 missing,
                LabelRows or multi-hot. path: (N, H) integers, coarse first, -1 unknown, or LabelRows with
                levels. none: not read. Labels and ids may stay in the host's memory: with `LossSpec.on_host`
                the host prepares them there while the device still computes the embeddings.
            sample_ids: (N,) integers, which simclr and a queue need. Other losses check that rows of one
                sample have equal labels, and use the ids for nothing else.
            rows: The rows of all processes with labels, if they were gathered before by `gather_rows`.

        Returns:
            A scalar, or (N,) for reduction `none`, in float32, or float64 for float64 embeddings.

        Raises:
            ValueError: For shapes, dtypes or values that do not fit.
            TypeError: For a sparse tensor, or embeddings that are no tensor.
        """
        labels = self.check(embeddings_ND, labels, sample_ids)
        with torch.autocast(embeddings_ND.device.type, enabled=False):
            z_ND = self.prepare(embeddings_ND)
            batch = rows or self.batches(z_ND, [labels], sample_ids)[0]
            if self.queue is not None:
                batch = self.queue.join(batch)
            small = self.engine == "auto" and self._has_one_matrix(batch) and batch.ranks.own <= SMALL
            if not self.tiled or small:
                return self._dense_value(batch)
            tau_1, prototype_LD = self.temperature.value().view(1), self._prepare_prototypes(z_ND)
            candidates = self.candidates(batch, embeddings_ND.dtype, prototype_LD)
            tau = self.temperature.engine_value()
            return tiled_sum(z_ND, tau_1, candidates, [tau], [self.part(batch, tau)], prototype_LD)[0]

    def __getstate__(self) -> dict[str, Any]:
        # The last batch is not pickled: a loss is sent to workers as it was built.
        return {**self.__dict__, "_stats": None}

    @property
    def tiled(self) -> bool:
        """Whether the tiled engine, and not the dense one, computes the loss of large batches."""
        return self.engine != "dense" and self.reduction != "none" and self.spec.closed is not None

    def check(self, embeddings: Tensor, labels: Labels | None, sample_ids: Tensor | None) -> Labels | None:
        """Checks the inputs, and returns the labels; None for a loss that reads no labels.

        Raises ValueError for inputs that do not fit each other, TypeError for a sparse tensor, or embeddings
        that are no tensor.
        """
        check_shapes(self.spec.name, self.spec.labels, embeddings, labels, sample_ids)
        return None if self.spec.labels == "none" else labels

    def prepare(self, z_ND: Tensor) -> Tensor:
        """Casts embeddings to the dtype of the computation; with `normalize` scales rows to unit length."""
        z_ND = z_ND if z_ND.dtype == torch.float64 else z_ND.float()
        return unit_rows(z_ND) if self.normalize else z_ND

    def _prepare_prototypes(self, z_ND: Tensor) -> Tensor | None:
        if self.prototypes is None:
            return None
        dimension = self.prototypes.shape[1]
        if dimension != z_ND.shape[1]:
            raise ValueError(f"embeddings {tuple(z_ND.shape)} do not fit prototypes of dimension {dimension}")
        return self.prepare(self.prototypes.to(z_ND.dtype))

    def batches(
        self, z_ND: Tensor, labels: Sequence[Labels | None], sample_ids: Tensor | None
    ) -> list[LossRows]:
        """Returns, for each of `labels`, the rows to compare: with `gather`, those of all processes."""
        rows = own_batch(z_ND, sample_ids)
        if self.gather and world(self.group) > 1:
            return whole_batches(rows, labels, self.group, gradient=not self.tiled)
        return [rows.with_labels(part) for part in labels]

    def candidates(
        self, batch: LossRows, dtype: torch.dtype, prototype_LD: Tensor | None = None
    ) -> Candidates:
        """Returns the rows as input of the tiled engine; `dtype` is that of the given embeddings."""
        products: Products = "bf16" if dtype == torch.bfloat16 else self.products
        z_BD, n_prototypes = batch.embeddings.detach(), 0
        if prototype_LD is not None:
            z_BD, n_prototypes = torch.cat([z_BD, prototype_LD.detach()]), len(prototype_LD)
        similarity = self.spec.similarity
        return Candidates(z_BD, batch.ranks, similarity, n_prototypes, self.normalize, products)

    def part(self, batch: LossRows, tau: Number, weight: float = 1.0, softmax: int = 0) -> LossPart:
        """Returns this loss as a part of a sum of losses that the tiled engine computes, and keeps its stats.

        `weight` is the loss's weight in the sum, and `softmax` the index of its temperature `tau`.
        """
        labels, z_BD = self._rule_labels(batch), batch.embeddings
        if not self.spec.on_host:
            labels = labels.to(z_BD.device)
        assert self.spec.closed is not None
        weights = self.spec.closed(labels, batch.ranks, **self._arguments).to(z_BD.device)
        self._keep_stats(batch, labels, tau)
        return LossPart(weights, weight, 1 / self._divisor(weights.has_positive, batch), softmax)

    def _keep_stats(self, batch: LossRows, labels: RuleLabels, tau: Number) -> None:
        z_BD = batch.embeddings.detach()
        self._stats = LossStats(self.spec, self.options, labels, batch.sample_ids, z_BD, batch.ranks.own, tau)

    def _rule_labels(self, batch: LossRows) -> RuleLabels:
        if self.prototypes is None:
            return rule_labels(self.spec, batch)
        if isinstance(batch.labels, Tensor) and batch.labels.ndim == 1:
            # Column l is class l, also if a class does not occur, so that each class keeps its prototype.
            batch = batch.with_labels(classes_as_rows(batch.labels, len(self.prototypes)))
        labels = rule_labels(self.spec, batch)
        check_width(self.spec.name, labels, len(self.prototypes))
        return labels

    def _divisor(self, has_positive: Callable[[], Tensor], batch: LossRows) -> Number:
        """Returns the number by which the reduction divides the sum over the anchors of all processes."""
        if self.reduction == "sum":
            return 1
        if self.reduction == "mean":
            return max(len(batch.embeddings) - batch.ranks.queued, 1)
        return batch.ranks.share(has_positive()).sum().clamp(min=1).to(batch.embeddings.dtype)

    def _dense_value(self, batch: LossRows) -> Tensor:
        labels, tau = self._rule_labels(batch), self.temperature.value()
        z_BD, anchors, similarity = batch.embeddings, batch.anchors, self.spec.similarity
        if not (self.spec.on_host and batch.ranks.own <= SMALL):
            labels = labels.to(z_BD.device)
        weighting = self.spec.weighting(labels, anchors, z_BD.dtype, self._arguments).to(z_BD.device)
        self._keep_stats(batch, labels, self.temperature.engine_value())
        terms = self.spec.terms
        plain = terms is None and not self.spec.prototypes and self.reduction != "none"
        if plain and self._has_one_matrix(batch) and batch.ranks.own > 1:
            return small_sum(z_BD, tau, weighting) / self._divisor(lambda: weighting.valid, batch)
        prototype_LD = self._prepare_prototypes(z_BD)
        if terms is None:
            term_N = anchor_terms(z_BD, anchors, weighting, tau, similarity, prototype_LD)
        else:
            term_N = constrained_terms(
                z_BD,
                anchors,
                tau,
                similarity,
                lambda logit_BC: terms(logit_BC, labels, **self._arguments),
                prototype_LD,
            )
        if self.reduction == "none":
            return term_N
        return batch.ranks.size * term_N.sum() / self._divisor(lambda: weighting.valid, batch)

    def _has_one_matrix(self, batch: LossRows) -> bool:
        alone = batch.ranks.size == 1 and not batch.ranks.queued
        return self.engine != "dense" and alone and self.spec.similarity == "dot"

    def extra_repr(self) -> str:
        """Returns the loss's settings as text, which PyTorch shows in a printed model."""
        options = "".join(f", {name}={value!r}" for name, value in self.options.items())
        return f"{self.spec.name}, reduction={self.reduction}, normalize={self.normalize}{options}"


def rule_labels(spec: LossSpec, batch: LossRows) -> RuleLabels:
    """Converts the batch's labels to the form that the rule reads, and checks their values."""
    if batch.labels is None:
        assert batch.sample_ids is not None
        return batch.sample_ids
    labels = to_rule(spec.labels, batch.labels)
    if batch.sample_ids is not None:
        check_views(labels, batch.sample_ids.to(batch.labels.device))
    return labels


def _init_prototypes(spec: LossSpec, shape: tuple[int, int] | None) -> nn.Parameter | None:
    """Returns new prototypes (L, D), initialised with random unit rows; None if no shape is given."""
    if shape is None:
        return None
    if not spec.prototypes:
        raise ValueError(f"{spec.name} has no prototypes; found: {shape}; allowed: None")
    sizes = shape if isinstance(shape, tuple | list) else ()
    if len(sizes) != 2 or not all(isinstance(size, int) and size > 0 for size in sizes):
        raise ValueError(f"prototypes must be (labels, dimension); found: {shape}")
    return nn.Parameter(unit_rows(torch.randn(shape)))


def _check_word(kind: str, word: str, allowed: tuple[str, ...]) -> None:
    if word not in allowed:
        raise ValueError(unknown_name(f"unknown {kind} {word!r}", word, allowed))


@cache
def _warn_dense(name: str) -> None:
    """Logs, once per process and name, that the loss with this name has no closed form."""
    logger.warning("loss %s has no closed form: its weights take memory of batch x batch", name)
