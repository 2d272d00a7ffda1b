"""The ZLPR loss of a row's labels. Shapes: R rows, L labels."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn


class ZeroBoundedRanking(nn.Module):
    """The zero-bounded log-sum-exp and pairwise rank-based loss (ZLPR) of a row with the logits s.

        log(1 + sum_{l absent} exp(s_l)) + log(1 + sum_{l present} exp(-s_l))

    It ranks each label of the row above each other label, and 0, the logit of the probability 1/2, between
    them. A label that is not known is in neither sum.
    Source: Su et al. 2022, ZLPR: A Novel Loss for Multi-label Classification (arXiv 2208.02955).
    """

    def forward(self, logit_RL: Tensor, target_RL: Tensor) -> Tensor:
        """Returns losses (R, 1) for logits and targets of 0, 1 and, for an unknown entry, -1."""
        zero_R1 = logit_RL.new_zeros(len(logit_RL), 1)
        absent_RL = logit_RL.masked_fill(target_RL != 0, -math.inf)
        present_RL = (-logit_RL).masked_fill(target_RL <= 0, -math.inf)
        absent_R1, present_R1 = (
            torch.cat([zero_R1, each_RL], dim=1).logsumexp(1, keepdim=True)
            for each_RL in (absent_RL, present_RL)
        )
        return absent_R1 + present_R1
