"""A batch that fits in one tile: the definition with its gradient by hand.

Shapes: B rows, all of them anchors, D embedding.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from mlcl.losses.similarities import EXCLUDED
from mlcl.losses.tiled_sum import refuse_second_derivative
from mlcl.losses.weighting import Weighting


class _Small(torch.autograd.Function):
    """sum_i L_i for s = z_i . z_p; see `dense` for L and `engine` for the gradient."""

    @staticmethod
    def forward(ctx: Any, z_BD: Tensor, tau: Tensor, weighting: Weighting) -> Tensor:
        s_BB = z_BD @ z_BD.T
        logit_BB = (s_BB / tau).fill_diagonal_(EXCLUDED)
        lse_B1 = logit_BB.logsumexp(1, keepdim=True)
        row_sum_B1 = weighting.weights.sum(1, keepdim=True)
        # sum_p W_ip (lse_i - s_ip / tau) in one product; W is 0 wherever s stands for nothing.
        value = torch.dot(weighting.weights.reshape(-1), (lse_B1 - logit_BB).reshape(-1))
        pull_BB = (logit_BB - lse_B1).exp_().mul_(row_sum_B1).sub_(weighting.weights).div_(tau)
        moment = torch.dot(pull_BB.view(-1), s_BB.view(-1))
        ctx.save_for_backward((pull_BB + pull_BB.T) @ z_BD, -moment / tau)
        return value if weighting.constant is None else value + weighting.constant.sum()

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, None]:
        refuse_second_derivative()
        z_gradient, tau_gradient = ctx.saved_tensors
        return grad * z_gradient, grad * tau_gradient, None


def small_sum(z_BD: Tensor, tau: Tensor, weighting: Weighting) -> Tensor:
    """sum_i L_i, a scalar; `weighting` of all B rows. Differentiable once."""
    value: Tensor = _Small.apply(z_BD, tau, weighting)
    return value
