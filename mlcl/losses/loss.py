"""The loss as a module: checks, gathers, weighs, and reduces.

Shapes: N rows of this process (its anchors), B rows of all (the candidates), D embedding.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any, Literal, get_args

import torch
from torch import Tensor, nn

from mlcl.losses.batch import Batch, own_batch, whole_batches
from mlcl.losses.collectives import Group, world
from mlcl.losses.dense import anchor_terms, constrained_terms
from mlcl.losses.engine import Candidates
from mlcl.losses.gradients import Part
from mlcl.losses.labels import Labels, RuleLabels, check_shapes, check_views, to_rule
from mlcl.losses.options import unknown
from mlcl.losses.products import FloatProducts, Products
from mlcl.losses.prototypes import by_prototype, check_dimension, check_width, new_prototypes
from mlcl.losses.spec import LossSpec
from mlcl.losses.stats import LossStats
from mlcl.losses.temperature import Temperature
from mlcl.losses.tiled_sum import small_sum, tiled_sum, uncompiled
from mlcl.losses.weights.base import Number
from mlcl.unit_rows import unit_rows

Reduction = Literal["mean", "sum", "mean_valid", "none"]
Engine = Literal["auto", "tiled", "dense"]
SMALL = 256
"""Rows of one process up to which `auto` takes W as a matrix, which is faster there than closed forms."""

logger = logging.getLogger(__name__)


class ContrastiveLoss(nn.Module):
    """L_i = sum_p W_ip (-log p_ip) over the anchors i, with W by the rule of `spec`.

    Reductions: `mean` over all anchors, those without a positive counting 0; `mean_valid` over the anchors
    with one; `sum`; `none`, the terms (N,). With `gather` and several processes, candidates and anchors are
    the rows of all; each process returns its part times the number of processes, so that the mean over
    processes, which DDP takes, is the loss of the whole batch in value and gradient (`none`: own terms, as
    they are). All processes must then scale their values alike. `normalize` scales rows to unit length
    first; one shorter than 1.2e-7 counts as zero, see `unit_rows`.

    The `tiled` engine needs O(B D) memory and computes the gradient in the forward, so that its gradient has
    no graph to differentiate again. `dense` is the definition, O(N B) with autograd. `auto` is tiled, but
    dense for `none` and for a loss without a closed form, which is logged once. It takes W as a matrix, with
    its gradient by hand, for small batches of one process, and without a closed form for all of them.

    `prototypes` (labels, dimension) gives a loss that may have them (msc) its learned prototypes, a parameter
    of random unit rows.

    The tiled engine multiplies bfloat16 embeddings in bfloat16, with float32 sums and logits, and float32
    ones by `products`; see `mlcl.losses.products`. Distances and small batches are exact.

    Build it with `build_loss`. Raises ValueError for an unknown reduction or engine, or a bad option.

        loss = build_loss("supcon", temperature=0.1)
        value = loss(torch.randn(8, 16), torch.tensor([0, 1, 2, 3, 0, 1, 2, 3]))
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
        options: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__()
        _check_word("reduction", reduction, get_args(Reduction))
        _check_word("engine", engine, get_args(Engine))
        _check_word("products", products, get_args(FloatProducts))
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
        self.prototypes = new_prototypes(spec, prototypes)
        self._stats: LossStats | None = None
        if spec.closed is None:
            _say_dense(spec.name)

    @property
    def stats(self) -> LossStats | None:
        """What the last call saw; computed when it is read. None before the first call."""
        return self._stats

    @uncompiled
    def forward(
        self,
        embeddings_ND: Tensor,
        labels: Labels | None = None,
        sample_ids: Tensor | None = None,
        *,
        rows: Batch | None = None,
    ) -> Tensor:
        """The reduced loss, a scalar ((N,) for `none`) in float32, or float64 for float64 embeddings.

        `embeddings_ND` (N, D) floating. `labels` by `spec.labels`: class (N,) integers, -1 missing;
        multi_label LabelRows, multi-hot (N, L) or class (N,) read as one-hot; ratings (N, A) >= 0, 0
        missing, LabelRows or multi-hot; path (N, H) integers, coarse first, -1 unknown, or LabelRows
        with levels; none: not read.
        Labels and ids may stay in the host's memory: with `LossSpec.on_host` the host prepares them there
        while the device still computes the embeddings.
        `sample_ids` (N,) integers: needed by simclr; elsewhere rows of one sample are checked for equal
        labels, and nothing else follows from them. `rows` are those of all processes, with labels, where
        they are gathered already, see `gathered`. Raises ValueError for shapes, dtypes or values that do not
        fit.
        """
        self.check(embeddings_ND, labels, sample_ids)
        with torch.autocast(embeddings_ND.device.type, enabled=False):
            z_ND = self.prepared(embeddings_ND)
            batch = rows or self.batches(z_ND, [self.read(labels)], sample_ids)[0]
            if not self.tiled or self._is_small(batch):
                return self._by_definition(batch)
            tau_1, prototype_LD = self.temperature.value().view(1), self._prepared_prototypes(z_ND)
            candidates = self.candidates(batch, embeddings_ND.dtype, prototype_LD)
            tau = self.temperature.known()
            return tiled_sum(z_ND, tau_1, candidates, [tau], [self.part(batch, tau)], prototype_LD)[0]

    def __getstate__(self) -> dict[str, Any]:
        # The last batch stays here: a loss is sent to workers as it was built.
        return {**self.__dict__, "_stats": None}

    @property
    def tiled(self) -> bool:
        """Whether the tiled engine is taken."""
        return self.engine != "dense" and self.reduction != "none" and self.spec.closed is not None

    def check(self, embeddings: Tensor, labels: Labels | None, sample_ids: Tensor | None) -> None:
        """Raises ValueError for inputs that do not fit each other, TypeError for sparse tensors as labels."""
        check_shapes(self.spec.name, self.spec.labels, embeddings, labels, sample_ids)

    def prepared(self, z_ND: Tensor) -> Tensor:
        """The embeddings in the dtype that is computed in, of unit length if wanted."""
        z_ND = z_ND if z_ND.dtype == torch.float64 else z_ND.float()
        return unit_rows(z_ND) if self.normalize else z_ND

    def _prepared_prototypes(self, z_ND: Tensor) -> Tensor | None:
        if self.prototypes is None:
            return None
        check_dimension(self.prototypes, z_ND)
        return self.prepared(self.prototypes.to(z_ND.dtype))

    def batches(
        self, z_ND: Tensor, labels: Sequence[Labels | None], sample_ids: Tensor | None
    ) -> list[Batch]:
        """The rows to compare, of this process or of all, once with each of the labels."""
        own = own_batch(z_ND, sample_ids)
        if self.gather and world(self.group) > 1:
            return whole_batches(own, labels, self.group, gradient=not self.tiled)
        return [own.labelled(part) for part in labels]

    def read(self, labels: Labels | None) -> Labels | None:
        """The labels if the rule reads them."""
        return None if self.spec.labels == "none" else labels

    def candidates(self, batch: Batch, dtype: torch.dtype, prototype_LD: Tensor | None = None) -> Candidates:
        """The batch as the tiled engine takes it, of embeddings that came in this dtype."""
        products: Products = "bf16" if dtype == torch.bfloat16 else self.products
        z_BD, extra = batch.embeddings.detach(), 0
        if prototype_LD is not None:
            z_BD, extra = torch.cat([z_BD, prototype_LD.detach()]), len(prototype_LD)
        similarity = self.spec.similarity
        return Candidates(z_BD, batch.own, similarity, batch.ranks, extra, self.normalize, products)

    def part(self, batch: Batch, tau: Number, weight: float = 1.0, softmax: int = 0) -> Part:
        """This loss as a part of the engine's sum, with its reduction and a weight as factor, at tau."""
        labels, z_BD = self._rule_labels(batch), batch.embeddings
        if not self.spec.on_host:
            labels = labels.to(z_BD.device)
        assert self.spec.closed is not None
        weights = self.spec.closed(labels, batch.own, batch.ranks, z_BD.dtype, **self._arguments)
        weights = weights.to(z_BD.device)
        self._remember(batch, labels, tau)
        return Part(weights, weight, 1 / self._divisor(weights.has_positive, batch), softmax)

    def _remember(self, batch: Batch, labels: RuleLabels, tau: Number) -> None:
        z_BD = batch.embeddings.detach()
        self._stats = LossStats(self.spec, self.options, labels, batch.sample_ids, z_BD, batch.own, tau)

    def _rule_labels(self, batch: Batch) -> RuleLabels:
        if self.prototypes is None:
            return rule_labels(self.spec, batch)
        labels = rule_labels(self.spec, by_prototype(batch, self.prototypes))
        check_width(self.spec.name, labels, self.prototypes)
        return labels

    def _divisor(self, has_positive: Callable[[], Tensor], batch: Batch) -> Number:
        """What the sum over the anchors of all processes is divided by."""
        if self.reduction == "sum":
            return 1
        if self.reduction == "mean":
            return max(len(batch.embeddings), 1)
        return batch.ranks.share(has_positive()).sum().clamp(min=1).double()

    def _by_definition(self, batch: Batch) -> Tensor:
        labels, tau = self._rule_labels(batch), self.temperature.value()
        z_BD, anchors, similarity = batch.embeddings, batch.anchors, self.spec.similarity
        if not (self.spec.on_host and batch.own <= SMALL):
            labels = labels.to(z_BD.device)
        weighting = self.spec.weighting(labels, anchors, z_BD.dtype, self._arguments).to(z_BD.device)
        self._remember(batch, labels, self.temperature.known())
        terms = self.spec.terms
        if self._is_by_hand(batch):
            return small_sum(z_BD, tau, weighting) / self._divisor(lambda: weighting.valid, batch)
        if terms is None:
            prototype_LD = self._prepared_prototypes(z_BD)
            term_N = anchor_terms(z_BD, anchors, weighting, tau, similarity, prototype_LD)
        else:
            term_N = constrained_terms(
                z_BD, anchors, tau, similarity, lambda loss_BB: terms(loss_BB, labels, **self.options)
            )
        if self.reduction == "none":
            return term_N
        return batch.ranks.size * term_N.sum() / self._divisor(lambda: weighting.valid, batch)

    def _is_small(self, batch: Batch) -> bool:
        return self.engine == "auto" and self._in_one_matrix(batch) and batch.own <= SMALL

    def _is_by_hand(self, batch: Batch) -> bool:
        """Whether the matrix path with its own gradient serves, instead of autograd."""
        plain = self.spec.terms is None and not self.spec.prototypes
        wanted = self.engine != "dense" and self.reduction != "none"
        return plain and wanted and self._in_one_matrix(batch) and batch.own > 1

    def _in_one_matrix(self, batch: Batch) -> bool:
        return batch.ranks.size == 1 and self.spec.similarity == "dot"

    def extra_repr(self) -> str:
        """The settings that a printed model shows."""
        options = "".join(f", {name}={value!r}" for name, value in self.options.items())
        return f"{self.spec.name}, reduction={self.reduction}, normalize={self.normalize}{options}"


def rule_labels(spec: LossSpec, batch: Batch) -> RuleLabels:
    """The batch's labels in the form that the rule reads, after the checks of their values."""
    if batch.labels is None:
        assert batch.sample_ids is not None
        return batch.sample_ids
    labels = to_rule(spec.labels, batch.labels)
    if batch.sample_ids is not None:
        check_views(labels, batch.sample_ids.to(batch.labels.device))
    return labels


def _check_word(what: str, found: str, allowed: tuple[str, ...]) -> None:
    if found not in allowed:
        raise ValueError(unknown(f"unknown {what} {found!r}", found, allowed))


@cache
def _say_dense(name: str) -> None:
    """Once a process."""
    logger.warning("loss %s has no closed form: its weights take memory of batch x batch", name)
