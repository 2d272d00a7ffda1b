"""Diagnostics of a loss's last call: its positives, its negatives, and the geometry of the embeddings.

Shapes: B rows, D embedding; n sampled anchors, which are compared with all rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from mlcl.losses.dense import Weighting, candidate_mask, similarities
from mlcl.losses.labels import RuleLabels
from mlcl.losses.spec import LossSpec
from mlcl.losses.weights.base import Number
from mlcl.unit_rows import unit_rows

SAMPLE = 512
"""The largest number of anchors, the first own rows, that are compared with all rows."""
PAIRS = 1 << 21
"""The largest number of pairs that are compared: for a large batch, fewer anchors are sampled."""


@dataclass(frozen=True)
class LossStats:
    """Diagnostics of a batch, computed when they are read, without a collective.

    They are means over own anchors, at most SAMPLE of them and about PAIRS pairs of them with all candidates;
    `zero_rows` counts all own rows. Only rows count as positives, not prototypes. For hicone and himulcone, W
    is computed as if no pair loss were raised. `embeddings` (B, D) are normalised if the loss normalises;
    `anchors` is the number of own rows.

    Example:
        >>> loss = build_loss("supcon", normalize=True)
        >>> value = loss(torch.randn(4, 8), torch.tensor([0, 0, 0, 1]))
        >>> loss.stats.positives_per_anchor, loss.stats.without_positive
        (1.5, 0.25)
    """

    spec: LossSpec
    options: Mapping[str, Any]
    labels: RuleLabels
    sample_ids: Tensor | None
    embeddings: Tensor
    anchors: int
    tau: Number

    @property
    def positives_per_anchor(self) -> float:
        """The mean number of positives |P(i)| of an anchor; 0 if there is no anchor."""
        return float(self._weighting.positives.double().mean()) if self.anchors else 0.0

    @property
    def without_positive(self) -> float:
        """The fraction of anchors that have no positive."""
        return float((self._weighting.positives == 0).double().mean()) if self.anchors else 0.0

    @property
    def own_view_weight(self) -> float:
        """The mean fraction of an anchor's weight that is on the other views of its own sample.

        It is the mean, over anchors i with a positive, of sum_p W_ip / R_i over the other views p of i's
        sample, where R_i is the sum of all W_ip. It is 1 for simclr, and 0 without sample ids.
        """
        weight_nB = self._weighting.weights
        total_n = weight_nB.sum(1)
        if self.sample_ids is None or not (total_n > 0).any():
            return 0.0
        id_B = self.sample_ids.to(weight_nB.device)
        own_n = (weight_nB * (id_B[self._sampled_anchors, None] == id_B)).sum(1)
        return float((own_n / total_n)[total_n > 0].double().mean())

    @property
    def effective_negatives(self) -> float:
        """The mean perplexity exp(H) of p_ia over the candidates that are not positive.

        It is the number of negatives if all have equal similarities, and 1 if one of them has all of the
        softmax's probability.
        """
        if not self.anchors or len(self.embeddings) < 2:
            return 0.0
        logit_nB = (
            similarities(self.embeddings[self._sampled_anchors], self.embeddings, self.spec.similarity)
            / self.tau
        )
        negative_nB = (self._weighting.weights == 0) & self._candidates
        log_p_nB = logit_nB.masked_fill(~negative_nB, -torch.inf).log_softmax(1)
        entropy_n = -(log_p_nB.exp() * log_p_nB.masked_fill(~negative_nB, 0)).sum(1)
        return float(torch.where(negative_nB.any(1), entropy_n.exp(), 0).mean())

    @property
    def alignment(self) -> float:
        """The mean |z_i - z_p|^2 of positive pairs of unit rows, weighted by W.

        Source: T. Wang and Isola 2020, section 4.1, without weights.
        """
        total = float(self._weighting.weights.sum())
        return float((self._weighting.weights * self._squared_distances).sum()) / total if total else 0.0

    @property
    def uniformity(self) -> float:
        """The log of the mean exp(-2 |z_i - z_a|^2) over pairs of unit rows.

        Source: T. Wang and Isola 2020, section 4.1.
        """
        if not self.anchors or len(self.embeddings) < 2:
            return 0.0
        return float((-2 * self._squared_distances)[self._candidates].exp().mean().log())

    @property
    def zero_rows(self) -> float:
        """The number of own rows whose embedding is zero; a loss that normalises gives them no gradient."""
        return float((self.embeddings[: self.anchors] == 0).all(1).sum())

    def as_dict(self) -> dict[str, float]:
        """Returns all diagnostics by name."""
        names = (
            "positives_per_anchor",
            "without_positive",
            "own_view_weight",
            "effective_negatives",
            "alignment",
            "uniformity",
            "zero_rows",
        )
        return {name: float(getattr(self, name)) for name in names}

    @cached_property
    def _sampled_anchors(self) -> slice:
        return slice(0, min(self.anchors, SAMPLE, max(1, PAIRS // max(1, len(self.embeddings)))))

    @cached_property
    def _weighting(self) -> Weighting:
        arguments = self.spec.arguments(self.options)
        labels = self.labels.to(self.embeddings.device)
        return self.spec.weighting(labels, self._sampled_anchors, self.embeddings.dtype, arguments)

    @cached_property
    def _candidates(self) -> Tensor:
        return candidate_mask(self._sampled_anchors, len(self.embeddings), self.embeddings.device)

    @cached_property
    def _squared_distances(self) -> Tensor:
        unit_BD = unit_rows(self.embeddings)
        square_B = unit_BD.any(1).to(unit_BD.dtype)  # 1, but 0 for a zero row
        square_nB = square_B[self._sampled_anchors, None] + square_B
        return (square_nB - 2 * unit_BD[self._sampled_anchors] @ unit_BD.T).clamp(min=0)
