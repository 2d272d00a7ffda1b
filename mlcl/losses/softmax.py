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
    multiplies those of rows, not those of prototypes. `moments`: whether `pull` shall add them up.
    """

    def __init__(
        self, similarities: Similarities, ratios: Sequence[float], repulsion: float = 1.0, *, moments: bool
    ) -> None:
        self._similarities = similarities
        self._ratios = ratios
        self._bias = math.log(repulsion)
        self._bounded = similarities.bounded(max(ratios))
        self._moments = moments
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
        self, u_IJ: Tensor, offset_TB: Tensor, rows: slice, cols: slice, moment_T: Tensor, ends: int
    ) -> Tensor:
        """sum_t ratio_t (R_i p_ij + R_j p_ji) of a tile, the derivative by u, in a buffer that is used again.

        `offset_TB` (T, columns) are logsumexp_i - log(ratio_t R_i), all that a row has to tell of itself.
        `moment_T` gains `ends` times sum_ij pull_ij u_ij of each temperature. `u_IJ` may be overwritten,
        where neither several temperatures nor moments nor distances need it.
        """
        total_IJ = None
        for number, offset_B in enumerate(offset_TB):
            one_IJ = self._pull(number, u_IJ, offset_B, rows, cols)
            if self._moments:
                moment_T[number] += ends * torch.dot(one_IJ.view(-1), u_IJ.view(-1))
            if len(offset_TB) == 1:
                return one_IJ
            total_IJ = _shaped(self._total, u_IJ).copy_(one_IJ) if total_IJ is None else total_IJ.add_(one_IJ)
        assert total_IJ is not None
        return total_IJ

    def _pull(self, number: int, u_IJ: Tensor, offset_B: Tensor, rows: slice, cols: slice) -> Tensor:
        keep = self._moments or len(self._ratios) > 1 or self._similarities.euclidean
        logit_IJ = self._logit(u_IJ, self._ratios[number], cols, keep)
        if self._bounded:
            scale_B = offset_B.neg().exp_()
            scale_IJ = torch.add(scale_B[rows, None], scale_B[cols], out=_shaped(self._scales, u_IJ))
            return logit_IJ.exp_().mul_(scale_IJ)
        back_IJ = torch.sub(logit_IJ, offset_B[cols], out=_shaped(self._scales, u_IJ)).exp_()
        return logit_IJ.sub_(offset_B[rows, None]).exp_().add_(back_IJ)

    def _logit(self, u_IJ: Tensor, ratio: float, cols: slice, keep: bool) -> Tensor:
        logit_IJ = torch.mul(u_IJ, ratio, out=_shaped(self._logits, u_IJ)) if keep else u_IJ
        return logit_IJ.add_(self._bias) if self._bias and cols.start < self._similarities.rows else logit_IJ


def _add_exponentials(sum_N: Tensor, logit_IJ: Tensor, rows: slice, cols: slice, mirrored: bool) -> None:
    logit_IJ.exp_()
    sum_N[rows] += logit_IJ.sum(1)
    if mirrored:
        sum_N[cols] += logit_IJ.sum(0)


def _add_in_logarithms(sum_N: Tensor, logit_IJ: Tensor, rows: slice, cols: slice, mirrored: bool) -> None:
    sum_N[rows] = torch.logaddexp(sum_N[rows], logit_IJ.logsumexp(1))
    if mirrored:
        sum_N[cols] = torch.logaddexp(sum_N[cols], logit_IJ.logsumexp(0))


def _shaped(buffer: Tensor, like: Tensor) -> Tensor:
    return buffer[: like.numel()].view(like.shape)
