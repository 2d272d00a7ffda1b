"""The gradient of the rows, from the derivative of the softmax part by each pair's similarity.

Shapes: N own rows (the first), B rows, D embedding, L prototypes, P parts; I, J of a tile; u = s / tau.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from mlcl.losses.similarities import Similarities
from mlcl.losses.softmax import total_product
from mlcl.losses.weights.base import Number, PairWeights

CLOSE_PAIRS = 4096
"""Close pairs whose differences are held at once."""


@dataclass(frozen=True)
class Part:
    """One loss: its weights, its weight in the sum, and the number of its temperature.

    `reduction` is what its sum over anchors is multiplied by.
    """

    weights: PairWeights
    weight: float
    reduction: Number
    softmax: int = 0

    @property
    def factor(self) -> Number:
        """Of the loss's sum over anchors in the sum of all parts."""
        return self.weight * self.reduction


def add_scaled(total: Tensor, value: Tensor, factor: Number) -> None:
    """Adds factor value to the total, in place."""
    if isinstance(factor, Tensor):
        total.addcmul_(value.to(total.dtype), factor.to(total.dtype))
    else:
        total.add_(value, alpha=factor)


class PairGradients(ABC):
    """Adds up tiles. `ratios` are the parts' tau / tau_p, by which a u of theirs is the greater.

    `weighted` (P,) are sum_ip W_ip u_ip over own anchors, `gradient` (N, D) that of the own rows as
    the similarities have them, and `prototype_gradient` (L, D) what the own anchors give the prototypes.
    """

    def __init__(self, similarities: Similarities, parts: Sequence[Part], ratios: Sequence[Number]) -> None:
        self._similarities = similarities
        self._z = similarities.z
        self._parts = list(zip(parts, ratios, strict=True))
        self.gradient = torch.zeros_like(self._z[: similarities.own])
        self.prototype_gradient = torch.zeros_like(self._z[similarities.rows :])
        self.weighted = self._z.new_zeros(len(parts), dtype=torch.float64)

    @abstractmethod
    def add(self, pull_IJ: Tensor, u_IJ: Tensor, rows: slice, cols: slice, mirrored: bool) -> None:
        """A tile's pull, the derivative of the softmax part by u, which may be overwritten, and its u."""


class DotGradients(PairGradients):
    """s = z_i . z_p: the weights act through (W + W^T) Z, in closed form, the softmax through its tiles."""

    def __init__(self, similarities: Similarities, parts: Sequence[Part], ratios: Sequence[Number]) -> None:
        super().__init__(similarities, parts, ratios)
        self._rows = similarities.rows
        own_ND, prototype_LD = self._z[: similarities.own], self._z[self._rows :]
        for number, (part, ratio) in enumerate(self._parts):
            drawn_ND = part.weights.attract(self._z)
            self.weighted[number] = total_product(drawn_ND, own_ND) / 2
            add_scaled(self.gradient, drawn_ND, -part.factor * ratio)
            if similarities.prototypes:
                drawn_LD = part.weights.attract_prototypes(self._z)
                self.weighted[number] += total_product(drawn_LD, prototype_LD) / 2
                add_scaled(self.prototype_gradient, drawn_LD, -part.factor * ratio)

    def add(self, pull_IJ: Tensor, _u_IJ: Tensor, rows: slice, cols: slice, mirrored: bool) -> None:
        """dL/dz_i gains sum_j pull_ij z_j."""
        add, pull_IJ = self._similarities.operand.add, self._similarities.operand.weights(pull_IJ)
        add(self.gradient[rows], pull_IJ, cols)
        if mirrored:
            add(self.gradient[cols], pull_IJ.T, rows)
        if cols.start >= self._rows:
            prototypes = slice(cols.start - self._rows, cols.stop - self._rows)
            add(self.prototype_gradient[prototypes], pull_IJ.T, rows)


class DistanceGradients(PairGradients):
    """u = -|z_i - z_p|: dL/dz_i = sum_p Q_ip (z_i - z_p), Q = (pull - W_ip - W_pi) / u.

    Between identical rows the derivative of the distance is infinite; its subgradient 0 is taken.
    """

    def add(self, pull_IJ: Tensor, u_IJ: Tensor, rows: slice, cols: slice, mirrored: bool) -> None:
        """A tile's part of the weighted sums and of the gradient."""
        for number, (part, ratio) in enumerate(self._parts):
            weight_IJ = part.weights.both(rows, cols).to(u_IJ.dtype)
            self.weighted[number] += total_product(weight_IJ, u_IJ) / (1 if mirrored else 2)
            add_scaled(pull_IJ, weight_IJ, -part.factor * ratio)
        force_IJ = pull_IJ.div_(u_IJ)
        self._move_close(force_IJ, u_IJ, rows, cols, mirrored)
        self._move(force_IJ, rows, cols)
        if mirrored:
            self._move(force_IJ.T, cols, rows)

    def _move(self, force_IJ: Tensor, rows: slice, cols: slice) -> None:
        self.gradient[rows].addcmul_(force_IJ.sum(1, keepdim=True), self._z[rows])
        self.gradient[rows].addmm_(force_IJ, self._z[cols], alpha=-1)

    def _move_close(self, force_IJ: Tensor, u_IJ: Tensor, rows: slice, cols: slice, mirrored: bool) -> None:
        """Adds close pairs by z_i - z_j itself, which cancels in `_move`, and sets their force there to 0."""
        if self._similarities.wide:
            force_IJ.masked_fill_(u_IJ == 0, 0)
        if not self._similarities.close:
            return
        for i, j in zip(*(torch.split(side, CLOSE_PAIRS) for side in self._similarities.close), strict=True):
            apart = u_IJ[i, j] != 0
            i, j = i[apart], j[apart]
            push_XD = force_IJ[i, j, None] * self._similarities.difference(rows.start + i, cols.start + j)
            self.gradient.index_add_(0, rows.start + i, push_XD)
            if mirrored:
                self.gradient.index_add_(0, cols.start + j, push_XD, alpha=-1)
        force_IJ[self._similarities.close] = 0
