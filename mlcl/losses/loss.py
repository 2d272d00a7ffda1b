"""The loss as a module: checks, gathers, weighs, and reduces.

Shapes: N rows of this process (its anchors), B rows of all (the candidates), D embedding.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, get_args

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from mlcl.losses.batch import Batch, own_batch, whole_batch
from mlcl.losses.engine import anchor_terms
from mlcl.losses.gather import Group, sum_over_ranks, world
from mlcl.losses.labels import Labels, check_shapes, check_views, to_rule
from mlcl.losses.spec import LossSpec, unknown
from mlcl.losses.stats import LossStats
from mlcl.losses.temperature import Temperature
from mlcl.losses.weighting import Weighting

Reduction = Literal["mean", "sum", "mean_valid", "none"]


class ContrastiveLoss(nn.Module):
    """L_i = sum_p W_ip (-log p_ip) over the anchors i, with W from the labels by the rule of `spec`.

    Reductions: `mean` over all anchors, those without a positive counting 0; `mean_valid` over the anchors
    with one; `sum`; `none`, the terms (N,). With `gather` and several processes, candidates and anchors are
    the rows of all; each process returns its anchors' part times the number of processes, so that the mean
    over processes, which DDP takes, is the loss of the whole batch in value and gradient (`none`: own terms,
    as they are). `normalize` scales rows to unit length first.

    Build it with `build_loss`. Raises ValueError for an unknown reduction or a bad option.

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
        options: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__()
        if reduction not in get_args(Reduction):
            raise ValueError(unknown(f"unknown reduction {reduction!r}", reduction, get_args(Reduction)))
        self.spec = spec
        self.options = spec.resolve(options or {})
        self.temperature = temperature
        self.reduction = reduction
        self.normalize = normalize
        self.gather = gather
        self.group = group
        self.stats: LossStats | None = None

    def forward(
        self, embeddings_ND: Tensor, labels: Labels | None = None, sample_ids: Tensor | None = None
    ) -> Tensor:
        """The reduced loss, a scalar ((N,) for `none`) in float32, or float64 for float64 embeddings.

        `embeddings_ND` (N, D) floating. `labels` by `spec.labels`: class (N,) integers, -1 missing;
        multi_label LabelRows, multi-hot (N, L) or class (N,) read as one-hot; ratings (N, A) >= 0, 0
        missing, LabelRows or multi-hot; none: not read. `sample_ids` (N,) integers: needed by simclr;
        elsewhere rows of one sample are checked for equal labels, and nothing else follows from them.
        Raises ValueError for shapes, dtypes or values that do not fit.
        """
        check_shapes(self.spec.name, self.spec.labels, embeddings_ND, labels, sample_ids)
        with torch.autocast(embeddings_ND.device.type, enabled=False):
            return self._reduced(embeddings_ND, labels, sample_ids)

    def _reduced(self, z_ND: Tensor, labels: Labels | None, sample_ids: Tensor | None) -> Tensor:
        z_ND = z_ND if z_ND.dtype == torch.float64 else z_ND.float()
        if self.normalize:
            z_ND = F.normalize(z_ND, dim=1)
        batch = own_batch(z_ND, None if self.spec.labels == "none" else labels, sample_ids)
        if self.gather and world(self.group) > 1:
            batch = whole_batch(batch, self.group)
        weighting = weigh(self.spec, batch, z_ND.dtype, self.options)
        self.stats = LossStats.of(weighting)
        tau = self.temperature.value()
        term_N = anchor_terms(batch.embeddings, batch.anchors, weighting, tau, self.spec.similarity)
        return self._reduce(term_N, weighting, batch)

    def _reduce(self, term_N: Tensor, weighting: Weighting, batch: Batch) -> Tensor:
        if self.reduction == "none":
            return term_N
        total = batch.processes * term_N.sum()
        if self.reduction == "sum":
            return total
        if self.reduction == "mean":
            return total / max(len(batch.embeddings), 1)
        valid = (weighting.positives > 0).sum()
        if batch.processes > 1:
            valid = sum_over_ranks(valid, self.group)
        return total / valid.clamp(min=1)

    def extra_repr(self) -> str:
        """The settings that a printed model shows."""
        options = "".join(f", {name}={value!r}" for name, value in self.options.items())
        return f"{self.spec.name}, reduction={self.reduction}, normalize={self.normalize}{options}"


def weigh(spec: LossSpec, batch: Batch, dtype: torch.dtype, options: Mapping[str, Any]) -> Weighting:
    """The rule's weights of the batch's anchors, after the checks of the labels' values."""
    if batch.labels is None:
        return spec.weigh(batch.sample_ids, batch.anchors, dtype, **options)
    labels = to_rule(spec.labels, batch.labels, dtype)
    if batch.sample_ids is not None:
        check_views(labels, batch.sample_ids)
    return spec.weigh(labels, batch.anchors, dtype, **options)
