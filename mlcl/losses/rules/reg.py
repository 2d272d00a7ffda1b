"""REG: rows attract by the labels they share, and none of the positives is pushed away.

Shapes: B rows, N anchors, L prototypes; I, J of a tile.
"""

from __future__ import annotations

from typing import Annotated

import torch
from torch import Tensor

from mlcl.losses.dense import pair_losses, ratio
from mlcl.losses.relations import LabelCounts
from mlcl.losses.sets import LabelSets
from mlcl.losses.spec import Interval, overlap_loss
from mlcl.losses.weights.base import BatchRanks
from mlcl.losses.weights.label_shares import LabelShareRule, LabelShares
from mlcl.losses.weights.pairwise import PairLoss, PairwiseWeights

From0 = Annotated[float, Interval(0)]


class RegRule(LabelShareRule):
    """The weights of msc with another f; the tiled engine gets them with the gradient of `reg_terms`."""

    def closed(self, sets: LabelSets, ranks: BatchRanks) -> RegWeights:
        """Returns the weights for the tiled engine."""
        return RegWeights(self, sets, ranks)


def reg_rule(*, prototypes: bool, alpha: From0 = 1.0) -> RegRule:
    """W_ip = f_ip / |y_i| sum_{l in y_i & y_p} 1 / N_il; 1 / (|y_i| N_il) for the prototype of l in y_i.

    f_ip = (|y_i & y_p| / |y_p|)^alpha is the share of p's labels that i has, and N_il = [prototypes] +
    sum_{p != i, l in y_p} f_ip. With prototypes the weights of an anchor that has labels add up to 1.

    Source: REG (Audibert et al. 2024, arXiv 2412.00101), in the form of its published code.
    """

    def share_of_candidate(counts: LabelCounts) -> Tensor:
        return ratio(counts.shared, counts.candidate_size) ** alpha

    return RegRule(share_of_candidate, prototypes)


def reg_terms(logit_BC: Tensor, sets: LabelSets, *, prototypes: bool, alpha: From0) -> Tensor:
    """Computes the terms L_i = -sum_p W_ip log p_ip (B,), whose gradient pushes no positive away.

    The gradient of L_i with respect to a candidate's logit is R_i p_ia - W_ia. For a positive p, W_ip is
    replaced by the larger of W_ip and R_i p_ip, so that the gradient is at most 0. Candidates are rows and
    prototypes (C).
    Source: REG (Audibert et al. 2024, arXiv 2412.00101), in the form of its published code. There the term
    that changes the gradient changes the value, too.
    """
    all_rows = slice(0, len(sets))
    rule = reg_rule(prototypes=prototypes, alpha=alpha)
    weighting = rule.dense(sets, all_rows, logit_BC.dtype).to(logit_BC.device)
    w_BC = weighting.weights
    if weighting.prototypes is not None:
        w_BC = torch.cat([w_BC, weighting.prototypes], 1)
    loss_BC = pair_losses(logit_BC, all_rows)
    pull_BC = _pull(w_BC, loss_BC.detach(), w_BC.sum(1, keepdim=True))
    return (w_BC * loss_BC - (pull_BC - w_BC) * (logit_BC - logit_BC.detach())).sum(1)


def _pull(weight: Tensor, loss: Tensor, row_sum: Tensor) -> Tensor:
    """Returns max(W_ip, R_i p_ip) for positives, else 0."""
    return torch.where(weight > 0, torch.maximum(weight, row_sum * loss.neg().exp()), 0)


class RegWeights(PairwiseWeights):
    """The weights of the pair losses W_ip (-log p_ip) with the gradient of `reg_terms`."""

    def __init__(self, rule: RegRule, sets: LabelSets, ranks: BatchRanks) -> None:
        super().__init__(LabelShares(rule, sets, ranks, merge=False), ranks)

    def losses(self, weight: Tensor, x: Tensor, row_sum: Tensor) -> PairLoss:
        """Returns W x of pairs with its derivatives, of which `pull` is replaced as in `reg_terms`."""
        # x is clamped so that p is at most 1 despite rounding, like the p from which the engine subtracts it.
        return PairLoss(weight * x, weight, _pull(weight, x.clamp(min=0), row_sum))


REG = overlap_loss(
    "reg",
    reg_rule,
    summary="msc by the share of the other row's labels, in which no positive is pushed away",
    source="REG (Audibert et al. 2024, arXiv 2412.00101)",
    year=2024,
    terms=reg_terms,
    prototypes=True,
)
