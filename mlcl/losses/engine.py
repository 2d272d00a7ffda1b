"""The tiled engine: losses and their gradient in one go, in O(B D + tile^2) memory.

With R_i = sum_p W_ip and P the softmax of s / tau over A(i), a loss and its gradient are, for s = z_i . z_p,

    L     = sum_i R_i lse_i - (1/tau) sum_ip W_ip s_ip
    dL/dZ = (1/tau) [ (D_R P + P^T D_R) Z - (W + W^T) Z ]

Labels enter the B x B part through R alone, and W has closed forms (`weights`). For the distance, which is
not bilinear, W is made tile by tile. Rows of other processes enter through one number each, so that the
gradient of the own rows needs no collective of the size of the embeddings.

Shapes: N own rows (the first), B rows, D embedding, P parts, T temperatures; I, J of a tile.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
import torch.nn.functional as F
from torch import Tensor

from mlcl.losses.pulls import DistancePulls, DotPulls, Part, Pulls
from mlcl.losses.similarities import Similarities
from mlcl.losses.softmax import Softmax
from mlcl.losses.spec import Similarity
from mlcl.losses.weights.base import Ranks


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

    `z` (B + L, D): the first `own` of B rows are the anchors, the last L = `prototypes` are nobody's anchors.
    `repulsion` multiplies the exponentials of rows in the softmax's sum. float32 or float64, without graph.
    """

    z: Tensor
    own: int
    similarity: Similarity
    ranks: Ranks
    prototypes: int = 0
    repulsion: float = 1.0


def solve(
    candidates: Candidates,
    taus: Sequence[float],
    parts: Sequence[Part],
    *,
    gradient: bool,
    tau_gradient: bool,
) -> Solution:
    """Values, and those gradients that are wanted; the others are not what they say."""
    z_BD, own = candidates.z, candidates.own
    if len(z_BD) < 2:
        return _nothing(candidates, len(parts), len(taus))
    ratios = [taus[0] / tau for tau in taus]
    similarities = Similarities(z_BD, own, candidates.similarity, taus[0], candidates.prototypes)
    softmax = Softmax(similarities, ratios, candidates.repulsion, moments=tau_gradient)
    lse_TN = softmax.logsumexp()
    parts = [
        replace(part, weights=part.weights.given(z_BD, lse_TN[part.softmax], taus[part.softmax]))
        for part in parts
    ]
    made = DistancePulls if similarities.euclidean else DotPulls
    pulls: Pulls = made(similarities, parts, [ratios[part.softmax] for part in parts])
    moment_T = lse_TN.new_zeros(len(taus))
    if gradient or tau_gradient or similarities.euclidean:
        offset_TB = _offsets(parts, lse_TN, ratios, candidates)
        for rows, cols, mirrored in similarities.tiles():
            u_IJ = similarities.tile(rows, cols)
            # A pair of rows is met from both ends, here or by another process, one with a prototype once.
            ends = 2 if mirrored or cols.start >= similarities.rows else 1
            pull_IJ = softmax.pull(u_IJ, offset_TB, rows, cols, moment_T, ends)
            pulls.add(pull_IJ, u_IJ, rows, cols, mirrored)
    return Solution(
        _values(parts, lse_TN, ratios, pulls.weighted),
        pulls.gradient.div_(taus[0]),
        _tau_gradients(parts, taus, ratios, moment_T, pulls.weighted),
        pulls.prototype_gradient.div_(taus[0]),
    )


def _nothing(candidates: Candidates, parts: int, taus: int) -> Solution:
    """Of a single row, which has no candidates."""
    z_BD, rows = candidates.z, len(candidates.z) - candidates.prototypes
    own_ND, prototype_LD = torch.zeros_like(z_BD[: candidates.own]), torch.zeros_like(z_BD[rows:])
    return Solution(z_BD.new_zeros(parts), own_ND, z_BD.new_zeros(taus), prototype_LD)


def _offsets(
    parts: Sequence[Part], lse_TN: Tensor, ratios: Sequence[float], candidates: Candidates
) -> Tensor:
    """logsumexp_i - log(ratio_t R_i), R the parts' row sums and factors at each temperature (T, B + L).

    Infinite where nothing is pulled by the row itself, as by prototypes.
    """
    row_sum_TN = torch.zeros_like(lse_TN)
    for part in parts:
        row_sum_TN[part.softmax].add_(part.weights.row_sums, alpha=part.factor * ratios[part.softmax])
    offset_TB = candidates.ranks.share((lse_TN - row_sum_TN.log()).T).T
    return F.pad(offset_TB, (0, candidates.prototypes), value=torch.inf)


def _values(parts: Sequence[Part], lse_TN: Tensor, ratios: Sequence[float], weighted_P: Tensor) -> Tensor:
    values = []
    for part, weighted in zip(parts, weighted_P, strict=True):
        value = torch.dot(part.weights.row_sums, lse_TN[part.softmax]) - ratios[part.softmax] * weighted
        constant_N = part.weights.constant
        values.append(value if constant_N is None else value + constant_N.sum())
    return torch.stack(values)


def _tau_gradients(
    parts: Sequence[Part],
    taus: Sequence[float],
    ratios: Sequence[float],
    moment_T: Tensor,
    weighted_P: Tensor,
) -> Tensor:
    """dL/dtau = -(1/tau) [ sum_i R_i sum_a p_ia s_ia / tau - sum_ip W_ip s_ip / tau ], (T,)."""
    weighted_T = torch.zeros_like(moment_T)
    for part, weighted in zip(parts, weighted_P, strict=True):
        weighted_T[part.softmax] += part.factor * ratios[part.softmax] * weighted
    return (weighted_T - moment_T / 2) / moment_T.new_tensor(taus)
