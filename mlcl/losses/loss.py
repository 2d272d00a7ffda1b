"""The loss as a module: checks, gathers, weighs, and reduces.

Shapes: N rows of this process (its anchors), B rows of all (the candidates), D embedding.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Literal, get_args

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from mlcl.losses.batch import Batch, own_batch, whole_batch
from mlcl.losses.collectives import Group, sum_over_ranks, world
from mlcl.losses.compile_guard import uncompiled
from mlcl.losses.dense import anchor_terms, constrained_terms
from mlcl.losses.engine import Candidates
from mlcl.losses.gradients import Part
from mlcl.losses.labels import Labels, RuleLabels, check_shapes, check_views, known_classes, to_rule
from mlcl.losses.sets import LabelSets
from mlcl.losses.small_batch import small_sum
from mlcl.losses.spec import LossSpec, unknown
from mlcl.losses.stats import LossStats
from mlcl.losses.temperature import Temperature
from mlcl.losses.tiled_sum import tiled_sum
from mlcl.losses.weighting import Weighting
from mlcl.losses.weights.base import PairWeights

Reduction = Literal["mean", "sum", "mean_valid", "none"]
Engine = Literal["auto", "tiled", "dense"]
SMALL = 256
"""Rows of one process up to which `auto` takes W as a matrix, which is faster there than closed forms."""


class ContrastiveLoss(nn.Module):
    """L_i = sum_p W_ip (-log p_ip) over the anchors i, with W by the rule of `spec`.

    Reductions: `mean` over all anchors, those without a positive counting 0; `mean_valid` over the anchors
    with one; `sum`; `none`, the terms (N,). With `gather` and several processes, candidates and anchors are
    the rows of all; each process returns its part times the number of processes, so that the mean over
    processes, which DDP takes, is the loss of the whole batch in value and gradient (`none`: own terms, as
    they are). All processes must then scale their values alike. `normalize` scales rows to unit length first.

    The `tiled` engine needs O(B D) memory and computes the gradient in the forward, so that its gradient has
    no graph to differentiate again. `dense` is the definition, O(N B) with autograd. `auto` is tiled, but
    dense for `none`, and takes small batches of one process as a matrix.

    `prototypes` (labels, dimension) gives msc its learned prototypes, a parameter of random unit rows.

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
        prototypes: tuple[int, int] | None = None,
        options: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__()
        _check_word("reduction", reduction, get_args(Reduction))
        _check_word("engine", engine, get_args(Engine))
        if engine == "tiled" and reduction == "none":
            raise ValueError("reduction none has no tiled engine; allowed: dense, auto")
        self.spec = spec
        self.options = spec.resolve(options or {})
        self.temperature = temperature
        self.reduction = reduction
        self.normalize = normalize
        self.gather = gather
        self.group = group
        self.engine = engine
        self.prototypes = self._build_prototypes(prototypes)
        self._stats: LossStats | None = None

    def _build_prototypes(self, shape: tuple[int, int] | None) -> nn.Parameter | None:
        if shape is None:
            return None
        if not self.spec.prototypes:
            raise ValueError(f"{self.spec.name} has no prototypes; found: {shape}; allowed: None")
        if len(shape) != 2 or not all(isinstance(size, int) and size > 0 for size in shape):
            raise ValueError(f"prototypes must be (labels, dimension); found: {shape}")
        return nn.Parameter(F.normalize(torch.randn(shape), dim=1))

    @property
    def stats(self) -> LossStats | None:
        """What the last call saw; computed when it is read. None before the first call."""
        return self._stats

    @uncompiled
    def forward(
        self, embeddings_ND: Tensor, labels: Labels | None = None, sample_ids: Tensor | None = None
    ) -> Tensor:
        """The reduced loss, a scalar ((N,) for `none`) in float32, or float64 for float64 embeddings.

        `embeddings_ND` (N, D) floating. `labels` by `spec.labels`: class (N,) integers, -1 missing;
        multi_label LabelRows, multi-hot (N, L) or class (N,) read as one-hot; ratings (N, A) >= 0, 0
        missing, LabelRows or multi-hot; path (N, H) integers, coarse first, -1 unknown; none: not read.
        `sample_ids` (N,) integers: needed by simclr; elsewhere rows of one sample are checked for equal
        labels, and nothing else follows from them. Raises ValueError for shapes, dtypes or values that do not
        fit.
        """
        self.check(embeddings_ND, labels, sample_ids)
        with torch.autocast(embeddings_ND.device.type, enabled=False):
            z_ND = self.prepared(embeddings_ND)
            batch = self.labelled(self.rows(z_ND, sample_ids), labels)
            if not self.tiled or self._is_small(batch):
                return self._by_definition(batch)
            tau_1, prototype_LD = self.temperature.value().view(1), self._prepared_prototypes(z_ND)
            candidates = self.candidates(batch, prototype_LD)
            return tiled_sum(z_ND, tau_1, candidates, [self.part(batch)], prototype_LD)[0]

    def __getstate__(self) -> dict[str, Any]:
        # The last batch stays here: a loss is sent to workers as it was built.
        return {**self.__dict__, "_stats": None}

    @property
    def tiled(self) -> bool:
        """Whether the tiled engine is taken."""
        return self.engine != "dense" and self.reduction != "none"

    def check(self, embeddings: Tensor, labels: Labels | None, sample_ids: Tensor | None) -> None:
        """Raises ValueError for inputs that do not belong together."""
        check_shapes(self.spec.name, self.spec.labels, embeddings, labels, sample_ids)

    def prepared(self, z_ND: Tensor) -> Tensor:
        """The embeddings in the dtype that is computed in, of unit length if wanted."""
        z_ND = z_ND if z_ND.dtype == torch.float64 else z_ND.float()
        return F.normalize(z_ND, dim=1) if self.normalize else z_ND

    def _prepared_prototypes(self, z_ND: Tensor) -> Tensor | None:
        if self.prototypes is None:
            return None
        found = self.prototypes.shape[1]
        if found != z_ND.shape[1]:
            raise ValueError(f"embeddings {tuple(z_ND.shape)} do not fit prototypes of dimension {found}")
        return self.prepared(self.prototypes.to(z_ND.dtype))

    def rows(self, z_ND: Tensor, sample_ids: Tensor | None) -> Batch:
        """The rows to compare, of this process or of all, without labels."""
        own = own_batch(z_ND, sample_ids)
        if self.gather and world(self.group) > 1:
            return whole_batch(own, self.group, gradient=not self.tiled)
        return own

    def labelled(self, rows: Batch, labels: Labels | None) -> Batch:
        """The rows with those labels that the rule reads."""
        return rows.labelled(None if self.spec.labels == "none" else labels)

    def candidates(self, batch: Batch, prototype_LD: Tensor | None = None) -> Candidates:
        """The batch as the tiled engine takes it."""
        z_BD, extra = batch.embeddings.detach(), 0
        if prototype_LD is not None:
            z_BD, extra = torch.cat([z_BD, prototype_LD.detach()]), len(prototype_LD)
        repulsion = float(self.options.get("beta", 1.0))
        return Candidates(z_BD, batch.own, self.spec.similarity, batch.ranks, extra, repulsion)

    def _rule_options(self) -> dict[str, Any]:
        if not self.spec.prototypes:
            return self.options
        return {**self.options, "prototypes": self.prototypes is not None}

    def part(self, batch: Batch, weight: float = 1.0, softmax: int = 0) -> Part:
        """This loss as a part of the engine's sum, with its reduction and a weight as factor."""
        labels = self._rule_labels(batch)
        z_BD = batch.embeddings
        weights = self.spec.closed(labels, batch.own, batch.ranks, z_BD.dtype, **self._rule_options())
        tau = float(self.temperature.value().detach())
        self._stats = LossStats(self.spec, self.options, labels, z_BD.detach(), batch.own, tau)
        return Part(weights, weight, self._reduction_factor(weights, batch), softmax)

    def _rule_labels(self, batch: Batch) -> RuleLabels:
        if self.prototypes is not None and isinstance(batch.labels, Tensor) and batch.labels.ndim == 1:
            # By class, not by rank among those that occur: prototypes stay with their class.
            batch = replace(batch, labels=known_classes(batch.labels, len(self.prototypes)))
        labels = rule_labels(self.spec, batch)
        if self.prototypes is None or not isinstance(labels, LabelSets) or labels.rows is None:
            return labels
        if labels.rows.width != len(self.prototypes):
            raise ValueError(
                f"{self.spec.name} has prototypes of {len(self.prototypes)} labels; "
                f"found: labels of width {labels.rows.width}"
            )
        return labels

    def _reduction_factor(self, weights: PairWeights, batch: Batch) -> float:
        if self.reduction == "sum":
            return 1.0
        if self.reduction == "mean":
            return 1 / max(len(batch.embeddings), 1)
        return 1 / max(int(batch.ranks.share(weights.has_positive()).sum()), 1)

    def _by_definition(self, batch: Batch) -> Tensor:
        labels, tau = self._rule_labels(batch), self.temperature.value()
        z_BD, anchors, similarity = batch.embeddings, batch.anchors, self.spec.similarity
        weighting = self.spec.dense(labels, anchors, z_BD.dtype, **self._rule_options())
        self._stats = LossStats(
            self.spec, self.options, labels, z_BD.detach(), batch.own, float(tau.detach())
        )
        terms = self.spec.terms
        if self.tiled and terms is None and not self.spec.prototypes and len(z_BD) > 1:
            return self._reduced(small_sum(z_BD, tau, weighting), weighting, batch)
        if terms is None:
            extra = self.options.get("beta", 1.0), self._prepared_prototypes(z_BD)
            term_N = anchor_terms(z_BD, anchors, weighting, tau, similarity, *extra)
        else:
            term_N = constrained_terms(
                z_BD, anchors, tau, similarity, lambda loss_BB: terms(loss_BB, labels, **self.options)
            )
        if self.reduction == "none":
            return term_N
        return self._reduced(term_N.sum(), weighting, batch)

    def _is_small(self, batch: Batch) -> bool:
        alone = self.engine == "auto" and batch.ranks.size == 1 and self.spec.similarity == "dot"
        return alone and batch.own <= SMALL

    def _reduced(self, total: Tensor, weighting: Weighting, batch: Batch) -> Tensor:
        total = batch.ranks.size * total
        if self.reduction == "sum":
            return total
        if self.reduction == "mean":
            return total / max(len(batch.embeddings), 1)
        valid = weighting.valid.sum()
        if batch.ranks.size > 1:
            valid = sum_over_ranks(valid, self.group)
        return total / valid.clamp(min=1)

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
        check_views(labels, batch.sample_ids)
    return labels


def _check_word(what: str, found: str, allowed: tuple[str, ...]) -> None:
    if found not in allowed:
        raise ValueError(unknown(f"unknown {what} {found!r}", found, allowed))
