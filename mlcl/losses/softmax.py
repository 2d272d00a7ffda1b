"""The softmax of every row over all other rows, tile by tile: exact, without a B x B matrix.

Shapes: N own rows (the first), B rows, L prototypes, D embedding, T temperatures; I, J the rows and columns
of a tile.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from mlcl.losses import tiling
from mlcl.losses.gradients import PairGradients, total_product
from mlcl.losses.similarities import Similarities
from mlcl.losses.weights.base import Number


class Softmax:
    """The softmax of similarities at T temperatures.

    p_ij = exp(s_ij / tau_t) / sum_{a != i} exp(s_ia / tau_t). With u = s / tau_0, `ratios` are the
    tau_0 / tau_t. If |u| is known to be small enough, the exponentials are summed without a shift. Otherwise
    they are summed in logarithms, which computes twice as many of them.
    `repulsion` multiplies the exponentials of rows, not those of prototypes. With `moments`, `add_gradient`
    adds up the entropies, which the temperatures' gradients need.
    """

    def __init__(
        self, similarities: Similarities, ratios: Sequence[Number], repulsion: float = 1.0, *, moments: bool
    ) -> None:
        self._similarities = similarities
        self._ratios = ratios
        self._bias = math.log(repulsion)
        # If `_bounded`, exp(u) does not overflow, and no row's sum underflows to 0.
        numbers = [ratio for ratio in ratios if not isinstance(ratio, Tensor)]
        largest = max(numbers) if len(numbers) == len(ratios) else math.inf
        bound = largest * similarities.bound() + abs(self._bias)
        self._bounded = bound < (300 if similarities.z.dtype == torch.float64 else 40)
        self._moments = moments
        self._keeps_similarities = moments or len(ratios) > 1 or similarities.euclidean
        self._rows: list[tuple[Tensor, Tensor]] = []
        self._factors: list[Tensor] = []
        self._entropy_T = similarities.z.new_zeros(len(ratios), dtype=torch.float64)
        size = tiling.tile_entries(len(similarities.z), similarities.z.device)
        self._logits, self._scales, self._total = (similarities.z.new_empty(size) for _ in range(3))

    def logsumexp(self) -> Tensor:
        """Computes log sum_{a != i} exp(s_ia / tau_t) of the anchors (T, N)."""
        start = 0.0 if self._bounded else -torch.inf
        sum_TN = self._similarities.z.new_full((len(self._ratios), self._similarities.own), start)
        add = _add_exponentials if self._bounded else _add_in_logarithms
        for rows, cols, mirrored in self._similarities.tiles():
            u_IJ = self._similarities.tile(rows, cols)
            for sum_N, ratio in zip(sum_TN, self._ratios, strict=True):
                add(
                    sum_N, self._compute_logits(u_IJ, ratio, cols, keep=len(sum_TN) > 1), rows, cols, mirrored
                )
        return sum_TN.log_() if self._bounded else sum_TN

    def set_rows(self, value_2TB: Tensor) -> None:
        """Sets logsumexp_i and ratio_t R_i of all rows and prototypes (2, T, B + L), for `add_gradient`."""
        lse_TB, sum_TB = value_2TB
        self._rows = list(zip(lse_TB, sum_TB, strict=True))
        self._factors = list(lse_TB.neg().exp_().mul_(sum_TB))

    def add_gradient(self, gradients: PairGradients) -> None:
        """Adds the gradient of all pairs to `gradients`, tile by tile."""
        for rows, cols, mirrored in self._similarities.tiles():
            u_IJ = self._similarities.tile(rows, cols)
            derivative_IJ = self._derivative(u_IJ, rows, cols, mirrored)
            derivative_IJ = self._similarities.by_products(derivative_IJ, rows, cols)
            gradients.add(derivative_IJ, u_IJ, rows, cols, mirrored)

    def _derivative(self, u_IJ: Tensor, rows: slice, cols: slice, mirrored: bool) -> Tensor:
        """Computes a tile's derivative with respect to u, sum_t ratio_t (R_i p_ij + R_j p_ji).

        The next call overwrites the returned tensor. This call may overwrite `u_IJ`, unless there are several
        temperatures, `moments` or distances.
        """
        total_IJ = None
        for index, ratio in enumerate(self._ratios):
            logit_IJ = self._compute_logits(u_IJ, ratio, cols, self._keeps_similarities)
            if self._bounded:
                term_IJ = self._bounded_derivative(index, u_IJ, logit_IJ, rows, cols, mirrored)
            else:
                term_IJ = self._shifted_derivative(index, logit_IJ, rows, cols, mirrored)
            if len(self._ratios) == 1:
                return term_IJ
            total_IJ = (
                _view_like(self._total, u_IJ).copy_(term_IJ) if total_IJ is None else total_IJ.add_(term_IJ)
            )
        assert total_IJ is not None
        return total_IJ

    def entropies(self) -> Tensor:
        """Returns sum_i R_i H(p_i) over the own anchors i for each temperature (T,), H the entropy.

        `add_gradient` must have been called before. log p leaves out the logarithm of `repulsion`, which does
        not change with the temperature.
        """
        if not self._bounded:
            return self._entropy_T
        anchors = slice(0, self._similarities.own)
        terms = [
            torch.dot(lse_B[anchors].double(), sum_B[anchors].double()) / ratio
            for (lse_B, sum_B), ratio in zip(self._rows, self._ratios, strict=True)
        ]
        return self._entropy_T + torch.stack(terms)

    def _bounded_derivative(
        self, index: int, u_IJ: Tensor, logit_IJ: Tensor, rows: slice, cols: slice, mirrored: bool
    ) -> Tensor:
        factor_B = self._factors[index]
        factor_IJ = torch.add(factor_B[rows, None], factor_B[cols], out=_view_like(self._scales, u_IJ))
        derivative_IJ = logit_IJ.exp_().mul_(factor_IJ)
        if self._moments:
            # A pair of anchors occurs twice, here or in another process; one with a queue or prototype, once.
            ends = 1.0 if mirrored or cols.start >= self._similarities.batch else 0.5
            self._entropy_T[index] -= ends * total_product(derivative_IJ, u_IJ)
        return derivative_IJ

    def _shifted_derivative(
        self, index: int, logit_IJ: Tensor, rows: slice, cols: slice, mirrored: bool
    ) -> Tensor:
        lse_B, sum_B = self._rows[index]
        # p is at most 1, but without the limit rounding could exceed this at large logits.
        log_ji_IJ = torch.sub(logit_IJ, lse_B[cols], out=_view_like(self._scales, logit_IJ)).clamp_(max=0)
        log_ij_IJ = logit_IJ.sub_(lse_B[rows, None]).clamp_(max=0)
        if not self._moments:
            ij_IJ = log_ij_IJ.exp_().mul_(sum_B[rows, None])
            return ij_IJ.add_(log_ji_IJ.exp_().mul_(sum_B[cols]))
        ij_IJ, ji_IJ = log_ij_IJ.exp() * sum_B[rows, None], log_ji_IJ.exp() * sum_B[cols]
        bias = self._column_bias(cols)
        entropy = total_product(ij_IJ, log_ij_IJ.sub_(bias))
        if mirrored:
            entropy = entropy + total_product(ji_IJ, log_ji_IJ.sub_(bias))
        self._entropy_T[index] -= entropy / self._ratios[index]
        return ij_IJ.add_(ji_IJ)

    def _compute_logits(self, u_IJ: Tensor, ratio: Number, cols: slice, keep: bool) -> Tensor:
        logit_IJ = torch.mul(u_IJ, ratio, out=_view_like(self._logits, u_IJ)) if keep else u_IJ
        bias = self._column_bias(cols)
        return logit_IJ.add_(bias) if bias else logit_IJ

    def _column_bias(self, cols: slice) -> float:
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


def _view_like(buffer: Tensor, template: Tensor) -> Tensor:
    return buffer[: template.numel()].view(template.shape)
