"""SINCERE: the anchor's other positives are no candidates. Shapes: B rows, N anchors; I, J of a tile."""

from __future__ import annotations

from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from mlcl.losses.dense import Weighting, candidate_mask
from mlcl.losses.relations import LabelCounts, equal_sets
from mlcl.losses.sets import LabelSets
from mlcl.losses.spec import LossSpec
from mlcl.losses.weights.base import EXCLUDED, BatchRanks
from mlcl.losses.weights.overlap import OverlapRule, share_label
from mlcl.losses.weights.pairwise import PairLoss, PairwiseWeights

Positives = Literal["overlapping", "equal"]
Denominator = Literal["pair", "negatives"]


def _match_equal_sets(counts: LabelCounts) -> tuple[Tensor, Tensor]:
    positive = equal_sets(counts) & (counts.anchor_size > 0)
    return positive, positive.to(counts.shared.dtype)


RULES = {
    "overlapping": OverlapRule(share_label, symmetric=True),
    "equal": OverlapRule(_match_equal_sets, symmetric=True),
}


def sincere_weights(
    sets: LabelSets,
    anchors: slice,
    dtype: torch.dtype,
    *,
    positives: Positives = "overlapping",
    denominator: Denominator = "pair",  # noqa: ARG001 - W does not depend on it
) -> Weighting:
    """W_ip = 1[p in P(i)] / |P(i)|, where P(i) are the other rows that share a label with i.

    With `positives="equal"` they are the other rows with the same set of labels as i, if it is not empty.
    """
    return RULES[positives].dense(sets, anchors, dtype)


def sincere_terms(
    logit_BB: Tensor, sets: LabelSets, *, positives: Positives, denominator: Denominator
) -> Tensor:
    """Computes the terms L_i = 1/|P(i)| sum_{p in P(i)} log(1 + exp(m_i - s_ip / tau)) (B,).

    m_i = log sum_{n in N(i)} exp(s_in / tau), where N(i) are the rows that are neither i nor positive. The
    term of a pair is -log of e^{s_ip / tau} / (e^{s_ip / tau} + sum_{n in N(i)} e^{s_in / tau}). With
    `denominator="negatives"` the positive leaves that sum too: the term is m_i - s_ip / tau. An anchor
    without negatives has the term 0. `sincere_weights` says what P(i) is; the source has one class a row,
    where both readings are the same.
    Source: SINCERE (Feeney and Hughes 2023); the sum of negatives alone is that of DCL (Yeh et al. 2022),
    which has one positive an anchor.
    """
    all_rows = slice(0, len(sets))
    w_BB = sincere_weights(sets, all_rows, logit_BB.dtype, positives=positives).to(logit_BB.device).weights
    negative_BB = candidate_mask(all_rows, len(sets), logit_BB.device) & (w_BB == 0)
    lse_B1 = logit_BB.masked_fill(~negative_BB, EXCLUDED).logsumexp(1, keepdim=True)
    if denominator == "negatives":
        return (w_BB * torch.where(negative_BB.any(1, keepdim=True), lse_B1 - logit_BB, 0)).sum(1)
    return (w_BB * -F.logsigmoid(logit_BB - lse_B1)).sum(1)


class SincereWeights(PairwiseWeights):
    """The weights of the pair losses W_ip log(1 + exp(x_ip)), or W_ip x_ip, with x_ip = m_i - s_ip / tau."""

    excludes = True

    def __init__(
        self, rule: OverlapRule, sets: LabelSets, ranks: BatchRanks, denominator: Denominator
    ) -> None:
        self._overlap = rule.closed(sets, ranks)
        super().__init__(self._overlap, ranks)
        self._is_decoupled = denominator == "negatives"

    def excluded_pairs(self, rows: slice, cols: slice) -> Tensor:
        """Whether pairs of a tile of rows are positive (I, J)."""
        return self._overlap.has_overlap(rows, cols)

    def losses(self, weight: Tensor, x: Tensor, _row_sum: Tensor) -> PairLoss:
        """Returns W log(1 + exp(x)) or W x of pairs, with its derivatives."""
        if self._is_decoupled:
            # An anchor without negatives has m = EXCLUDED.
            masked_weight = weight.masked_fill(x <= EXCLUDED / 2, 0)
            return PairLoss(masked_weight * x, masked_weight, masked_weight)
        slope = weight * x.sigmoid()
        return PairLoss(weight * -F.logsigmoid(-x), slope, slope)


def sincere_closed(
    sets: LabelSets, ranks: BatchRanks, *, positives: Positives, denominator: Denominator
) -> SincereWeights:
    """Returns the weights for the tiled engine."""
    return SincereWeights(RULES[positives], sets, ranks, denominator)


SINCERE = LossSpec(
    name="sincere",
    labels="multi_label",
    summary="rows that share a label attract, and do not repel each other",
    source="SINCERE (Feeney and Hughes 2023)",
    year=2023,
    dense=sincere_weights,
    closed=sincere_closed,
    terms=sincere_terms,
    own_softmax=True,
    queue=True,
    on_host=True,
)
