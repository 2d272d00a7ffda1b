"""Computes the gradient with respect to rows from the softmax part's derivative by each similarity.

Shapes: N own rows (the first), B rows, D embedding, L prototypes, P parts; I, J of a tile; u = s / tau.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from mlcl.losses.similarities import Similarities
from mlcl.losses.weights.base import Number, PairWeights

CLOSE_PAIRS = 4096
"""The largest number of close pairs whose differences are held in memory at once."""


@dataclass(frozen=True)
class LossPart:
    """One loss of a weighted sum: the `weights` of its pairs, and the loss's `weight` in the sum.

    `reduction` multiplies the loss's sum over anchors, such as 1 / B for the mean. `softmax` is the index of
    the loss's temperature.
    """

    weights: PairWeights
    weight: float
    reduction: Number
    softmax: int = 0

    @property
    def factor(self) -> Number:
        """The factor that multiplies the loss's sum over anchors in the sum of all parts."""
        return self.weight * self.reduction


def add_scaled(total: Tensor, value: Tensor, factor: Number) -> None:
    """Adds factor * value to the total, in place."""
    if isinstance(factor, Tensor):
        total.addcmul_(value.to(total.dtype), factor.to(total.dtype))
    else:
        total.add_(value, alpha=factor)


def total_product(first: Tensor, second: Tensor) -> Tensor:
    """Returns the sum of the elementwise product of two matrices, in float64: large terms may cancel."""
    total: Tensor = torch.linalg.vecdot(first, second).sum(dtype=torch.float64)
    return total


class PairGradients(ABC):
    """The base class of the gradient for each kind of similarity, which is added up tile by tile.

    `ratios` are tau / tau_p, the factors from u to the logits of part p. `weighted` (P,) are this process's
    shares of sum_ip W_ip u_ip. `gradient` (N, D) is the gradient with respect to the own
    rows, and `prototype_gradient` (L, D) the part of the prototypes' gradient that comes from own anchors;
    both are gradients with respect to scaled rows, see `Similarities`.
    """

    def __init__(
        self, similarities: Similarities, parts: Sequence[LossPart], ratios: Sequence[Number]
    ) -> None:
        self._similarities = similarities
        self._z = similarities.z
        self._parts = list(zip(parts, ratios, strict=True))
        self.gradient = torch.zeros_like(self._z[: similarities.own])
        self.prototype_gradient = torch.zeros_like(self._z[similarities.rows :])
        self.weighted = self._z.new_zeros(len(parts), dtype=torch.float64)

    @abstractmethod
    def add(self, derivative_IJ: Tensor, u_IJ: Tensor, rows: slice, cols: slice, mirrored: bool) -> None:
        """Adds a tile, given u and the softmax part's derivative by u; the derivative may be overwritten."""


class DotGradients(PairGradients):
    """Computes the gradient for dot products: (W + W^T) Z in closed form, and the softmax part by tiles."""

    def __init__(
        self, similarities: Similarities, parts: Sequence[LossPart], ratios: Sequence[Number]
    ) -> None:
        super().__init__(similarities, parts, ratios)
        self._rows = similarities.rows
        z_ND, prototype_LD = self._z[: similarities.own], self._z[self._rows :]
        for index, (part, ratio) in enumerate(self._parts):
            product_ND = part.weights.attract(self._z)
            self.weighted[index] = total_product(product_ND, z_ND) / 2
            add_scaled(self.gradient, product_ND, -part.factor * ratio)
            if similarities.batch < self._rows:
                product_ND = part.weights.attract_queue(self._z, slice(similarities.batch, self._rows))
                self.weighted[index] += total_product(product_ND, z_ND) / 2
            if similarities.prototypes:
                product_LD = part.weights.attract_prototypes(self._z)
                self.weighted[index] += total_product(product_LD, prototype_LD) / 2
                add_scaled(self.prototype_gradient, product_LD, -part.factor * ratio)

    def add(self, derivative_IJ: Tensor, _u_IJ: Tensor, rows: slice, cols: slice, mirrored: bool) -> None:
        """Adds sum_j derivative_ij z_j to dL/dz_i."""
        operand = self._similarities.operand
        derivative_IJ = operand.weights(derivative_IJ)
        operand.add(self.gradient[rows], derivative_IJ, cols)
        if mirrored:
            operand.add(self.gradient[cols], derivative_IJ.T, rows)
        if cols.start >= self._rows:
            prototypes = slice(cols.start - self._rows, cols.stop - self._rows)
            operand.add(self.prototype_gradient[prototypes], derivative_IJ.T, rows)


class DistanceGradients(PairGradients):
    """Computes the gradient for distances; the distance between identical rows has the subgradient 0.

    dL/dz_i = sum_j Q_ij (z_i - z_j), Q = (derivative - W_ij - W_ji) / u.
    """

    def add(self, derivative_IJ: Tensor, u_IJ: Tensor, rows: slice, cols: slice, mirrored: bool) -> None:
        """Adds the part of the weighted sums and of the gradient that comes from a tile."""
        for index, (part, ratio) in enumerate(self._parts):
            weight_IJ = part.weights.symmetric_weights(rows, cols).to(u_IJ.dtype)
            once = mirrored or cols.start >= self._similarities.batch
            self.weighted[index] += total_product(weight_IJ, u_IJ) / (1 if once else 2)
            add_scaled(derivative_IJ, weight_IJ, -part.factor * ratio)
        q_IJ = derivative_IJ.div_(u_IJ)
        self._add_close_pairs(q_IJ, u_IJ, rows, cols, mirrored)
        self._add_tile(q_IJ, rows, cols)
        if mirrored:
            self._add_tile(q_IJ.T, cols, rows)

    def _add_tile(self, q_IJ: Tensor, rows: slice, cols: slice) -> None:
        self.gradient[rows].addcmul_(q_IJ.sum(1, keepdim=True), self._z[rows])
        self.gradient[rows].addmm_(q_IJ, self._z[cols], alpha=-1)

    def _add_close_pairs(self, q_IJ: Tensor, u_IJ: Tensor, rows: slice, cols: slice, mirrored: bool) -> None:
        """Adds the gradient of close pairs from z_i - z_j, and sets their Q to 0 for `_add_tile`.

        `_add_tile` adds Q z_i and -Q z_j separately: for close pairs their digits would cancel.
        """
        if self._similarities.wide:
            q_IJ.masked_fill_(u_IJ == 0, 0)
        if not self._similarities.close:
            return
        for i, j in zip(*(torch.split(side, CLOSE_PAIRS) for side in self._similarities.close), strict=True):
            unequal = u_IJ[i, j] != 0
            i, j = i[unequal], j[unequal]
            term_XD = q_IJ[i, j, None] * self._similarities.difference(rows.start + i, cols.start + j)
            self.gradient.index_add_(0, rows.start + i, term_XD)
            if mirrored:
                self.gradient.index_add_(0, cols.start + j, term_XD, alpha=-1)
        q_IJ[self._similarities.close] = 0
