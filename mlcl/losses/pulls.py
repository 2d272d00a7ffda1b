"""What becomes of the softmax's pull on a pair: the gradient of the rows, for either similarity.

Shapes: N own rows (the first), B rows, D embedding, P parts; I, J the rows and columns of a tile.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from mlcl.losses.similarities import Similarities
from mlcl.losses.weights.base import PairWeights


@dataclass(frozen=True)
class Part:
    """One loss: its weights, its weight in the sum, and which of the temperatures it has, with its value.

    `reduction` is what its sum over anchors is multiplied by.
    """

    weights: PairWeights
    weight: float
    reduction: float
    softmax: int
    tau: float

    @property
    def factor(self) -> float:
        """Of the loss's sum over anchors in the sum of all parts."""
        return self.weight * self.reduction


class Pulls(Protocol):
    """Adds up tiles.

    `weighted` (P,) are sum_ip W_ip s_ip over own anchors, `gradient` (N, D) that of the own rows, and
    `prototype_gradient` (L, D) what the own anchors give the prototypes.
    """

    weighted: Tensor
    gradient: Tensor
    prototype_gradient: Tensor

    def add(self, pull_IJ: Tensor, s_IJ: Tensor, rows: slice, cols: slice, mirrored: bool) -> None:
        """A tile's pull sum_t (R_i p_ij + R_j p_ji) / tau, which may be overwritten, and its similarities."""
        ...


class DotPulls:
    """s = z_i . z_p: the weights act through (W + W^T) Z, in closed form, the softmax through its tiles."""

    def __init__(self, similarities: Similarities, parts: Sequence[Part]) -> None:
        self._z = similarities.z
        self._rows = similarities.rows
        own_ND = self._z[: similarities.own]
        self.gradient = torch.zeros_like(own_ND)
        self.prototype_gradient = torch.zeros_like(self._z[self._rows :])
        self.weighted = own_ND.new_zeros(len(parts))
        for number, part in enumerate(parts):
            attracted_ND = part.weights.attract(self._z)
            self.weighted[number] = torch.dot(attracted_ND.reshape(-1), own_ND.reshape(-1)) / 2
            self.gradient.sub_(attracted_ND, alpha=part.factor / part.tau)
            if similarities.prototypes:
                drawn_LD = part.weights.attract_prototypes(self._z)
                self.weighted[number] += torch.dot(drawn_LD.view(-1), self._z[self._rows :].reshape(-1)) / 2
                self.prototype_gradient.sub_(drawn_LD, alpha=part.factor / part.tau)

    def add(self, pull_IJ: Tensor, _s_IJ: Tensor, rows: slice, cols: slice, mirrored: bool) -> None:
        """dL/dz_i gains sum_j pull_ij z_j."""
        self.gradient[rows].addmm_(pull_IJ, self._z[cols])
        if mirrored:
            self.gradient[cols].addmm_(pull_IJ.T, self._z[rows])
        if cols.start >= self._rows:
            prototypes = slice(cols.start - self._rows, cols.stop - self._rows)
            self.prototype_gradient[prototypes].addmm_(pull_IJ.T, self._z[rows])


class DistancePulls:
    """s = -d, d = |z_i - z_p|: with Q = (sum W_ip + W_pi - pull) / d, dL/dz_i = sum_p Q_ip (z_i - z_p).

    Between identical rows the derivative of d is infinite; its subgradient 0 is taken.
    """

    def __init__(self, similarities: Similarities, parts: Sequence[Part]) -> None:
        self._z = similarities.z
        self._parts = parts
        self.gradient = torch.zeros_like(self._z[: similarities.own])
        self.prototype_gradient = torch.zeros_like(self._z[similarities.rows :])
        self.weighted = self._z.new_zeros(len(parts))

    def add(self, pull_IJ: Tensor, s_IJ: Tensor, rows: slice, cols: slice, mirrored: bool) -> None:
        """A tile's part of the weighted sums and of the gradient."""
        force_IJ = pull_IJ.neg_()
        for number, part in enumerate(self._parts):
            there_IJ, back_IJ = part.weights.pairs(rows, cols)
            weight_IJ = there_IJ + back_IJ
            self.weighted[number] += torch.dot(weight_IJ.view(-1), s_IJ.view(-1)) / (1 if mirrored else 2)
            force_IJ.add_(weight_IJ, alpha=part.factor / part.tau)
        force_IJ.div_(s_IJ).neg_().nan_to_num_(0, 0, 0)
        self._move(force_IJ, rows, cols)
        if mirrored:
            self._move(force_IJ.T, cols, rows)

    def _move(self, force_IJ: Tensor, rows: slice, cols: slice) -> None:
        self.gradient[rows].addcmul_(force_IJ.sum(1, keepdim=True), self._z[rows])
        self.gradient[rows].addmm_(force_IJ, self._z[cols], alpha=-1)
