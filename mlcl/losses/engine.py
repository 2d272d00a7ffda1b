"""The tiled engine: losses and their gradient in one go, in O(B D + tile^2) memory.

With R_i = sum_p W_ip and P the softmax of s / tau over A(i), a loss and its gradient are, for s = z_i . z_p,

    L     = sum_i R_i lse_i - (1/tau) sum_ip W_ip s_ip
    dL/dZ = (1/tau) [ (D_R P + P^T D_R) Z - (W + W^T) Z ]

Labels enter the B x B part through R alone, and W has closed forms (`weights`). For the distance, which is
not bilinear, W is made tile by tile. Rows of other processes enter through lse_i and R_i, so that the
gradient of the own rows needs no collective of the size of the embeddings.

Shapes: N own rows (the first), B rows, D embedding, P parts, T temperatures; I, J of a tile.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
import torch.nn.functional as F
from torch import Tensor

from mlcl.losses.gradients import DistanceGradients, DotGradients, PairGradients, Part, add_scaled
from mlcl.losses.products import Products, multiplying
from mlcl.losses.similarities import Similarities
from mlcl.losses.softmax import Softmax
from mlcl.losses.spec import Similarity
from mlcl.losses.weights.base import Number, Ranks


@dataclass(frozen=True)
class Solution:
    """What the own rows have part in; summed over processes it is that of all anchors.

    `values` (P,) are the parts' sums over anchors, without factors; `gradient` (N, D), `tau_gradients` (T,)
    and `prototype_gradient` (L, D) belong to the sum of all parts with their factors.
    """

    values: Tensor
    gradient: Tensor
    tau_gradients: Tensor
    prototype_gradient: Tensor


@dataclass(frozen=True)
class Candidates:
    """What the anchors compare themselves with.

    `z` (B + L, D): the first `own` of B rows are the anchors, the last L = `prototypes` are candidates only.
    float32 or float64, without graph. `unit`: no row is longer than 1. `products` are those of dot products;
    distances, in which they would cancel, are exact.
    """

    z: Tensor
    own: int
    similarity: Similarity
    ranks: Ranks
    prototypes: int = 0
    unit: bool = False
    products: Products = "exact"


def solve(
    candidates: Candidates,
    taus: Sequence[Number],
    parts: Sequence[Part],
    *,
    gradient: bool,
    tau_gradient: bool,
) -> Solution:
    """Values, and those gradients that are asked for; the others are not to be read.

    The parts share a softmax, so their weights have one `repulsion`. `taus` on a device are tensors of no
    dimension, and the host reads nothing there, but for distances of float64 rows one number a tile.
    """
    with multiplying(candidates.products, candidates.z.device):
        return _solve(candidates, taus, parts, gradient, tau_gradient)


def _solve(
    candidates: Candidates, taus: Sequence[Number], parts: Sequence[Part], gradient: bool, tau_gradient: bool
) -> Solution:
    z_BD, own = candidates.z, candidates.own
    if len(z_BD) < 2:
        return _nothing(candidates, len(parts), len(taus))
    ratios = [1.0, *(taus[0] / tau for tau in taus[1:])]
    similarities = Similarities(
        z_BD,
        own,
        candidates.similarity,
        taus[0],
        candidates.prototypes,
        unit=candidates.unit,
        products=candidates.products,
    )
    softmax = Softmax(similarities, ratios, parts[0].weights.repulsion, moments=tau_gradient)
    lse_TN = softmax.logsumexp()
    parts = [
        replace(part, weights=part.weights.given(similarities.z, lse_TN[part.softmax], ratios[part.softmax]))
        for part in parts
    ]
    made = DistanceGradients if similarities.euclidean else DotGradients
    pulls: PairGradients = made(similarities, parts, [ratios[part.softmax] for part in parts])
    if gradient or tau_gradient or similarities.euclidean:
        softmax.set_rows(_row_values(parts, lse_TN, ratios, candidates))
        for rows, cols, mirrored in similarities.tiles():
            u_IJ = similarities.tile(rows, cols)
            pulls.add(softmax.pull(u_IJ, rows, cols, mirrored), u_IJ, rows, cols, mirrored)
    value_P = _values(parts, lse_TN, ratios, pulls.weighted)
    return Solution(
        _with_constants(parts, value_P).to(z_BD.dtype),
        pulls.gradient.div_(similarities.scale).to(z_BD.dtype),
        _tau_gradients(parts, taus, value_P, softmax.entropies())
        if tau_gradient
        else z_BD.new_zeros(len(taus)),
        pulls.prototype_gradient.div_(similarities.scale).to(z_BD.dtype),
    )


def _nothing(candidates: Candidates, parts: int, taus: int) -> Solution:
    """Of a single row, which has no candidates."""
    z_BD, rows = candidates.z, len(candidates.z) - candidates.prototypes
    own_ND, prototype_LD = torch.zeros_like(z_BD[: candidates.own]), torch.zeros_like(z_BD[rows:])
    return Solution(z_BD.new_zeros(parts), own_ND, z_BD.new_zeros(taus), prototype_LD)


def _row_values(
    parts: Sequence[Part], lse_TN: Tensor, ratios: Sequence[Number], candidates: Candidates
) -> Tensor:
    """logsumexp_i and ratio_t R_i of all rows (2, T, B + L), gathered from all processes.

    R are the parts' row sums and factors at each temperature; 0 for prototypes, which are no anchors.
    """
    row_sum_TN = torch.zeros_like(lse_TN)
    for part in parts:
        add_scaled(row_sum_TN[part.softmax], part.weights.row_sums, part.factor * ratios[part.softmax])
    own_N2T = torch.stack([lse_TN, row_sum_TN]).permute(2, 0, 1)
    return F.pad(candidates.ranks.share(own_N2T).permute(1, 2, 0), (0, candidates.prototypes)).contiguous()


def _values(parts: Sequence[Part], lse_TN: Tensor, ratios: Sequence[Number], weighted_P: Tensor) -> Tensor:
    """sum_i R_i lse_i - sum_ip W_ip s_ip / tau (P,), in float64: little may be left of large terms."""
    lse_TN = lse_TN.double()
    return torch.stack(
        [
            torch.dot(part.weights.row_sums.double(), lse_TN[part.softmax]) - ratios[part.softmax] * weighted
            for part, weighted in zip(parts, weighted_P, strict=True)
        ]
    )


def _with_constants(parts: Sequence[Part], value_P: Tensor) -> Tensor:
    constants = [0.0 if part.weights.constant is None else part.weights.constant.sum() for part in parts]
    return torch.stack([value + constant for value, constant in zip(value_P, constants, strict=True)])


def _tau_gradients(
    parts: Sequence[Part], taus: Sequence[Number], value_P: Tensor, entropy_T: Tensor
) -> Tensor:
    """dL/dtau = -(1/tau) (L - sum_i R_i H(p_i)), (T,): with log p in H no large terms are left to cancel."""
    value_T = torch.zeros_like(entropy_T)
    for part, value in zip(parts, value_P, strict=True):
        value_T[part.softmax] += part.factor * value
    gradients = [
        (entropy - value) / tau for entropy, value, tau in zip(entropy_T, value_T, taus, strict=True)
    ]
    return torch.stack(gradients)
