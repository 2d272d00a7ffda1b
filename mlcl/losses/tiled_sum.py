"""Losses on one embedding as functions of autograd, whose gradient the forward has computed already.

`tiled_sum` goes through the pairs tile by tile, `small_sum` takes a batch that fits in one tile. A compiled
model runs them as they are (`uncompiled`).
Shapes: N own rows, B rows, D embedding, P losses, T temperatures, L prototypes.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, ParamSpec, TypeVar

import torch
from torch import Tensor

from mlcl.losses.engine import Candidates, solve
from mlcl.losses.gradients import Part
from mlcl.losses.similarities import EXCLUDED
from mlcl.losses.weighting import Weighting
from mlcl.losses.weights.base import Number

P = ParamSpec("P")
T = TypeVar("T")


def uncompiled(function: Callable[P, T]) -> Callable[P, T]:
    """Runs the function as it is within a compiled model, which cannot trace the engine's use of buffers.

    `torch.compiler.disable` as a decorator would do, but would import the compiler with the losses.
    """

    @functools.wraps(function)
    def call(*arguments: P.args, **options: P.kwargs) -> T:
        if not torch.compiler.is_compiling():
            return function(*arguments, **options)
        answer: T = torch.compiler.disable(function)(*arguments, **options)  # type: ignore[no-untyped-call]
        return answer

    return call


def refuse_second_derivative() -> None:
    """Raises RuntimeError in a backward that is itself to be differentiated, to which these are constants."""
    if torch.is_grad_enabled():
        raise RuntimeError('this engine has no second derivative; build the loss with engine="dense"')


class _Solved(torch.autograd.Function):
    """The sum of the parts with their factors, and each part's value without gradient."""

    @staticmethod
    def forward(
        ctx: Any,
        _z_ND: Tensor,
        tau_T: Tensor,
        prototype_LD: Tensor | None,
        candidates: Candidates,
        taus: Sequence[Number],
        parts: Sequence[Part],
    ) -> tuple[Tensor, Tensor]:
        for_z, for_tau, for_prototypes = ctx.needs_input_grad[:3]
        solution = solve(candidates, taus, parts, gradient=for_z or for_prototypes, tau_gradient=for_tau)
        scale = candidates.ranks.size
        ctx.save_for_backward(
            scale * solution.gradient,
            (scale * solution.tau_gradients).to(tau_T.dtype),
            scale * solution.prototype_gradient if prototype_LD is not None else None,
        )
        values_P = scale * solution.values
        ctx.mark_non_differentiable(values_P)
        weighted = [part.factor * value for part, value in zip(parts, values_P, strict=True)]
        return torch.stack(weighted).sum(), values_P

    @staticmethod
    def backward(ctx: Any, grad: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
        refuse_second_derivative()
        z_gradient, tau_gradient, prototype_gradient = ctx.saved_tensors
        if prototype_gradient is not None:
            prototype_gradient = grad * prototype_gradient
        return grad * z_gradient, grad * tau_gradient, prototype_gradient, None, None, None


def tiled_sum(
    z_ND: Tensor,
    tau_T: Tensor,
    candidates: Candidates,
    taus: Sequence[Number],
    parts: Sequence[Part],
    prototype_LD: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """sum_p factor_p L_p, a scalar with gradient, and the L_p (P,) without, each summed over anchors.

    Both times the number of processes, see `ContrastiveLoss`. `z_ND` are the own rows of the candidates,
    `taus` the numbers in `tau_T`, which may have a graph, where the host knows them.
    """
    total, values_P = _Solved.apply(z_ND, tau_T, prototype_LD, candidates, taus, parts)
    return total, values_P


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
