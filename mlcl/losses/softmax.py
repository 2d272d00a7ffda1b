"""The softmax of every row over all others, tile by tile: exact, without a B x B matrix.

Shapes: N own rows (the first), B rows, D embedding, T temperatures; I, J the rows and columns of a tile.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from mlcl.losses import tiling
from mlcl.losses.similarities import Similarities


class Softmax:
    """p_ij = exp(s_ij / tau_t) / sum_{a != i} exp(s_ia / tau_t) for T temperatures over one similarity.

    With u = s / tau_0, `ratios` are the tau_0 / tau_t. Where |u| is small enough the exponentials are summed
    as they are; else every row is shifted by its own maximum, at twice the exponentials. `repulsion`
    multiplies those of rows, not those of prototypes. `moments`: whether `pull` shall add up what
    the temperatures' gradients need.
    """

    def __init__(
        self, similarities: Similarities, ratios: Sequence[float], repulsion: float = 1.0, *, moments: bool
    ) -> None:
        self._similarities = similarities
        self._ratios = ratios
        self._bias = math.log(repulsion)
        # Where exp(u) neither overflows nor lets a row underflow to 0.
        reach = max(ratios) * similarities.reach() + abs(self._bias)
        self._bounded = reach < (300 if similarities.z.dtype == torch.float64 else 40)
        self._moments = moments
        self._keep = moments or len(ratios) > 1 or similarities.euclidean
        size = tiling.entries(len(similarities.z), similarities.z.device)
        self._logits, self._scales, self._total = (similarities.z.new_empty(size) for _ in range(3))

    def logsumexp(self) -> Tensor:
        """log sum_{a != i} exp(s_ia / tau_t), (T, N)."""
        start = 0.0 if self._bounded else -torch.inf
        sum_TN = self._similarities.z.new_full((len(self._ratios), self._similarities.own), start)
        add = _add_exponentials if self._bounded else _add_in_logarithms
        for rows, cols, mirrored in self._similarities.tiles():
            u_IJ = self._similarities.tile(rows, cols)
            for sum_N, ratio in zip(sum_TN, self._ratios, strict=True):
                add(sum_N, self._logit(u_IJ, ratio, cols, keep=len(sum_TN) > 1), rows, cols, mirrored)
        return sum_TN.log_() if self._bounded else sum_TN

    def pull(
        self, u_IJ: Tensor, told_2TB: Tensor, rows: slice, cols: slice, entropy_T: Tensor, mirrored: bool
    ) -> Tensor:
        """sum_t ratio_t (R_i p_ij + R_j p_ji) of a tile, the derivative by u, in a buffer that is used again.

        `told_2TB` are logsumexp_i and ratio_t R_i of all rows, all that a row has to tell of itself.
        `entropy_T` gains -sum R_i p_ij log p_ij of own anchors, where moments are wanted; `entropies` has the
        rest. `u_IJ` may be overwritten, where neither several temperatures nor moments nor distances need it.
        """
        total_IJ = None
        for number, (lse_B, sum_B) in enumerate(zip(*told_2TB, strict=True)):
            logit_IJ = self._logit(u_IJ, self._ratios[number], cols, self._keep)
            told = lse_B[rows, None], lse_B[cols], sum_B[rows, None], sum_B[cols]
            if self._bounded:
                one_IJ = self._bounded_pull(logit_IJ, *told)
                if self._moments:
                    # A pair is met from both ends, here or by another process, one with a prototype once.
                    ends = 1.0 if mirrored or cols.start >= self._similarities.rows else 0.5
                    entropy_T[number] -= ends * total_product(one_IJ, u_IJ)
            else:
                one_IJ, entropy = self._shifted_pull(logit_IJ, *told, mirrored, self._bias_of(cols))
                entropy_T[number] += entropy / self._ratios[number]
            if len(self._ratios) == 1:
                return one_IJ
            total_IJ = _shaped(self._total, u_IJ).copy_(one_IJ) if total_IJ is None else total_IJ.add_(one_IJ)
        assert total_IJ is not None
        return total_IJ

    def entropies(self, entropy_T: Tensor, told_2TB: Tensor) -> Tensor:
        """sum_i R_i H(p_i) over own anchors (T,), H the entropy, from what `pull` has added up.

        With log p less the repulsion's logarithm, which does not change with the temperature.
        """
        if not self._bounded:
            return entropy_T
        lse_TN, sum_TN = told_2TB[:, :, : self._similarities.own].double()
        rest_T: Tensor = (lse_TN * sum_TN).sum(1) / entropy_T.new_tensor(self._ratios)
        return entropy_T + rest_T

    def _bounded_pull(
        self, logit_IJ: Tensor, lse_I1: Tensor, lse_J: Tensor, sum_I1: Tensor, sum_J: Tensor
    ) -> Tensor:
        there_I1, back_J = lse_I1.neg().exp_().mul_(sum_I1), lse_J.neg().exp_().mul_(sum_J)
        return logit_IJ.exp_().mul_(torch.add(there_I1, back_J, out=_shaped(self._scales, logit_IJ)))

    def _shifted_pull(
        self,
        logit_IJ: Tensor,
        lse_I1: Tensor,
        lse_J: Tensor,
        sum_I1: Tensor,
        sum_J: Tensor,
        mirrored: bool,
        bias: float,
    ) -> tuple[Tensor, Tensor | float]:
        # No p is above 1, but at large logits rounding would let it be.
        back_log_IJ = torch.sub(logit_IJ, lse_J, out=_shaped(self._scales, logit_IJ)).clamp_(max=0)
        there_log_IJ = logit_IJ.sub_(lse_I1).clamp_(max=0)
        if not self._moments:
            return there_log_IJ.exp_().mul_(sum_I1).add_(back_log_IJ.exp_().mul_(sum_J)), 0.0
        there_IJ, back_IJ = there_log_IJ.exp() * sum_I1, back_log_IJ.exp() * sum_J
        entropy = -total_product(there_IJ, there_log_IJ.sub_(bias))
        if mirrored:
            entropy = entropy - total_product(back_IJ, back_log_IJ.sub_(bias))
        return there_IJ.add_(back_IJ), entropy

    def _logit(self, u_IJ: Tensor, ratio: float, cols: slice, keep: bool) -> Tensor:
        logit_IJ = torch.mul(u_IJ, ratio, out=_shaped(self._logits, u_IJ)) if keep else u_IJ
        bias = self._bias_of(cols)
        return logit_IJ.add_(bias) if bias else logit_IJ

    def _bias_of(self, cols: slice) -> float:
        return self._bias if cols.start < self._similarities.rows else 0.0


def _add_exponentials(sum_N: Tensor, logit_IJ: Tensor, rows: slice, cols: slice, mirrored: bool) -> None:
    logit_IJ.exp_()
    sum_N[rows] += logit_IJ.sum(1)
    if mirrored:
        sum_N[cols] += logit_IJ.sum(0)


def _add_in_logarithms(sum_N: Tensor, logit_IJ: Tensor, rows: slice, cols: slice, mirrored: bool) -> None:
    sum_N[rows] = torch.logaddexp(sum_N[rows], logit_IJ.logsumexp(1))
    if mirrored:
        sum_N[cols] = torch.logaddexp(sum_N[cols], logit_IJ.logsumexp(0))


def total_product(one: Tensor, other: Tensor) -> Tensor:
    """The sum of the products of two matrices' entries, in float64: it is what is left of larger numbers."""
    total: Tensor = torch.linalg.vecdot(one, other).sum(dtype=torch.float64)
    return total


def _shaped(buffer: Tensor, like: Tensor) -> Tensor:
    return buffer[: like.numel()].view(like.shape)
