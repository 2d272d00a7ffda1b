"""The tiled engine computes losses together with their gradient, in O(B D + tile^2) memory.

With R_i = sum_p W_ip, D_R = diag(R) and P the softmax of s / tau over the candidates A(i) of each anchor, a
loss and its gradient are, for s = z_i . z_p,

    L     = sum_i R_i lse_i - (1/tau) sum_ip W_ip s_ip
    dL/dZ = (1/tau) [ (D_R P + P^T D_R) Z - (W + W^T) Z ]

The B x B part depends on labels only through R, and products with W have closed forms (`weights`). For the
distance, which is not bilinear, W is computed tile by tile. Rows of other processes enter through lse_i and
R_i, so that the gradient of the own rows needs no collective of the size of the embeddings.

`tiled_sum` computes losses tile by tile, `small_sum` computes one loss of a batch that fits in one tile. Both
are autograd functions that compute the gradient in the forward already.

Shapes: N own rows (the first), B rows, D embedding, P parts, T temperatures, L prototypes; I, J of a tile.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, ParamSpec, TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor

from mlcl.losses.dense import Weighting
from mlcl.losses.fused import FusedSoftmax, serves
from mlcl.losses.gradients import DistanceGradients, DotGradients, LossPart, PairGradients, add_scaled
from mlcl.losses.similarities import Candidates, Similarities, matmul_precision
from mlcl.losses.softmax import Softmax
from mlcl.losses.weights.base import EXCLUDED, Number

P = ParamSpec("P")
T = TypeVar("T")


def disable_compile(function: Callable[P, T]) -> Callable[P, T]:
    """Makes a function run uncompiled within a compiled model, since the engine's buffers cannot be traced.

    The decorator `torch.compiler.disable` does this too, but imports the compiler together with the losses.
    """

    @functools.wraps(function)
    def call(*arguments: P.args, **options: P.kwargs) -> T:
        if not torch.compiler.is_compiling():
            return function(*arguments, **options)
        answer: T = torch.compiler.disable(function)(*arguments, **options)  # type: ignore[no-untyped-call]
        return answer

    return call


@dataclass(frozen=True)
class Solution:
    """The values and gradients of losses, as this process's share of those of all processes.

    `values` (P,) are the parts' sums over anchors, without factors. `gradient` (N, D) of the own rows,
    `tau_gradients` (T,) and `prototype_gradient` (L, D) are gradients of the sum of all parts times their
    factors. `gradient` is complete; each of the others must be added up over the processes.
    """

    values: Tensor
    gradient: Tensor
    tau_gradients: Tensor
    prototype_gradient: Tensor


def solve(
    candidates: Candidates,
    taus: Sequence[Number],
    parts: Sequence[LossPart],
    *,
    gradient: bool,
    tau_gradient: bool,
) -> Solution:
    """Computes the values and gradients of losses that share their similarities, tile by tile.

    `taus` are the T temperatures: floats, or tensors without dimensions if their values are on a device. All
    parts must have the same `repulsion`. Gradients that are not asked for have arbitrary values. With rows on
    a device, the host waits for it only if similarities are distances of float64 rows, once for each tile.
    """
    z_BD = candidates.z
    if len(z_BD) < 2:  # a single row has no candidates
        gradient_ND, gradient_LD = (
            z_BD.new_zeros(rows, z_BD.shape[1]) for rows in (candidates.ranks.own, candidates.prototypes)
        )
        return Solution(z_BD.new_zeros(len(parts)), gradient_ND, z_BD.new_zeros(len(taus)), gradient_LD)
    with matmul_precision(candidates.products, z_BD.device):
        ratios = [1.0, *(taus[0] / tau for tau in taus[1:])]
        weights = parts[0].weights
        similarities = Similarities(candidates, taus[0], weights)
        fused = serves(similarities) and not weights.own_softmax
        make_softmax = FusedSoftmax if fused else Softmax
        softmax = make_softmax(similarities, ratios, weights.repulsion, moments=tau_gradient)
        lse_TN = softmax.logsumexp().clamp_(min=EXCLUDED)
        parts = [
            replace(
                part,
                weights=part.weights.with_embeddings(
                    similarities.z, lse_TN[part.softmax], ratios[part.softmax]
                ),
            )
            for part in parts
        ]
        make = DistanceGradients if similarities.euclidean else DotGradients
        gradients: PairGradients = make(similarities, parts, [ratios[part.softmax] for part in parts])
        if gradient or tau_gradient or similarities.euclidean:
            softmax.set_rows(_row_values(parts, lse_TN, ratios, candidates))
            softmax.add_gradient(gradients)
        value_P = _part_values(parts, lse_TN, ratios, gradients.weighted)
        if tau_gradient:
            tau_gradient_T = _tau_gradients(parts, taus, value_P, softmax.entropies())
        else:
            tau_gradient_T = z_BD.new_zeros(len(taus))
        return Solution(
            _add_constants(parts, value_P).to(z_BD.dtype),
            gradients.gradient.div_(similarities.scale).to(z_BD.dtype),
            tau_gradient_T,
            gradients.prototype_gradient.div_(similarities.scale).to(z_BD.dtype),
        )


def _row_values(
    parts: Sequence[LossPart], lse_TN: Tensor, ratios: Sequence[Number], candidates: Candidates
) -> Tensor:
    """Returns logsumexp_i and ratio_t R_i (2, T, B + L), gathered from all processes; 0 for prototypes.

    R_i at a temperature is the sum of the row sums, times their factors, of the parts with this temperature.
    """
    row_sum_TN = torch.zeros_like(lse_TN)
    for part in parts:
        add_scaled(row_sum_TN[part.softmax], part.weights.row_sums, part.factor * ratios[part.softmax])
    # An anchor without candidates has R_i = 0, but exp(-lse_i) would be infinite.
    value_N2T = torch.stack([lse_TN.masked_fill(lse_TN <= EXCLUDED / 2, 0), row_sum_TN]).permute(2, 0, 1)
    return F.pad(candidates.ranks.share(value_N2T).permute(1, 2, 0), (0, candidates.prototypes)).contiguous()


def _part_values(
    parts: Sequence[LossPart], lse_TN: Tensor, ratios: Sequence[Number], weighted_P: Tensor
) -> Tensor:
    """Computes sum_i R_i lse_i - sum_ip W_ip s_ip / tau (P,), in float64, since large terms may cancel."""
    lse_TN = lse_TN.double()
    return torch.stack(
        [
            torch.dot(part.weights.row_sums.double(), lse_TN[part.softmax]) - ratios[part.softmax] * weighted
            for part, weighted in zip(parts, weighted_P, strict=True)
        ]
    )


def _add_constants(parts: Sequence[LossPart], value_P: Tensor) -> Tensor:
    constants = [0.0 if part.weights.constant is None else part.weights.constant.sum() for part in parts]
    return torch.stack([value + constant for value, constant in zip(value_P, constants, strict=True)])


def _tau_gradients(
    parts: Sequence[LossPart], taus: Sequence[Number], value_P: Tensor, entropy_T: Tensor
) -> Tensor:
    """Computes dL/dtau = -(1/tau) (L - sum_i R_i H(p_i)), (T,).

    H is the entropy, computed from log p, so that no large terms cancel.
    """
    value_T = torch.zeros_like(entropy_T)
    for part, value in zip(parts, value_P, strict=True):
        value_T[part.softmax] += part.factor * value
    gradients = [
        (entropy - value) / tau for entropy, value, tau in zip(entropy_T, value_T, taus, strict=True)
    ]
    return torch.stack(gradients)


def _refuse_second_derivative() -> None:
    """Raises RuntimeError in a backward with create_graph=True, which would treat gradients as constants."""
    if torch.is_grad_enabled():
        raise RuntimeError('this engine has no second derivative; build the loss with engine="dense"')


class _TiledSum(torch.autograd.Function):
    """Computes the sum of the parts times their factors, and each part's value without gradient."""

    @staticmethod
    def forward(
        ctx: Any,
        _z_ND: Tensor,
        tau_T: Tensor,
        prototype_LD: Tensor | None,
        candidates: Candidates,
        taus: Sequence[Number],
        parts: Sequence[LossPart],
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
        _refuse_second_derivative()
        z_gradient, tau_gradient, prototype_gradient = ctx.saved_tensors
        if prototype_gradient is not None:
            prototype_gradient = grad * prototype_gradient
        return grad * z_gradient, grad * tau_gradient, prototype_gradient, None, None, None


def tiled_sum(
    z_ND: Tensor,
    tau_T: Tensor,
    candidates: Candidates,
    taus: Sequence[Number],
    parts: Sequence[LossPart],
    prototype_LD: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Computes sum_p factor_p L_p, a scalar with gradient, and L (P,) without; L_p is a sum over anchors.

    Both are multiplied by the number of processes, see `build_loss`. `z_ND` are the own rows of the
    candidates. `tau_T` holds the temperatures, with a graph if they are learned; `taus` are their values.
    """
    total, values_P = _TiledSum.apply(z_ND, tau_T, prototype_LD, candidates, taus, parts)
    return total, values_P


class _SmallSum(torch.autograd.Function):
    """Computes sum_i L_i for s = z_i . z_p; see `dense` for L and the top of this file for the gradient."""

    @staticmethod
    def forward(ctx: Any, z_BD: Tensor, tau: Tensor, weighting: Weighting) -> Tensor:
        s_BB = z_BD @ z_BD.T
        logit_BB = (s_BB / tau).fill_diagonal_(EXCLUDED)
        lse_B1 = logit_BB.logsumexp(1, keepdim=True)
        row_sum_B1 = weighting.weights.sum(1, keepdim=True)
        # sum_p W_ip (lse_i - s_ip / tau) in one product; W is 0 wherever s has no meaning.
        value = torch.dot(weighting.weights.reshape(-1), (lse_B1 - logit_BB).reshape(-1))
        slope_BB = (logit_BB - lse_B1).exp_().mul_(row_sum_B1).sub_(weighting.weights).div_(tau)
        moment = torch.dot(slope_BB.view(-1), s_BB.view(-1))
        ctx.save_for_backward((slope_BB + slope_BB.T) @ z_BD, -moment / tau)
        return value if weighting.constant is None else value + weighting.constant.sum()

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, None]:
        _refuse_second_derivative()
        z_gradient, tau_gradient = ctx.saved_tensors
        return grad * z_gradient, grad * tau_gradient, None


def small_sum(z_BD: Tensor, tau: Tensor, weighting: Weighting) -> Tensor:
    """Computes sum_i L_i, a scalar; all B rows are anchors of `weighting`. Differentiable once."""
    value: Tensor = _SmallSum.apply(z_BD, tau, weighting)
    return value
