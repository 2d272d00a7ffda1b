"""Losses of pairs other than -log p_ip, for the tiled engine.

With x_ip = lse_i - s_ip / tau, a loss L_i = sum_p f(W_ip, x_ip) and its gradient are those of weights W' and
row sums R' that follow from the embeddings: W'_ip is minus the derivative of f by the logit s_ip / tau, and
R'_i the sum over p of its derivatives by lse_i. They are computed tile by tile: memory stays O(B D).

Shapes: N own rows, B rows, D embedding; I, J of a tile.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass

import torch
from torch import Tensor

from mlcl.losses import tiling
from mlcl.losses.weights.base import BatchRanks, Number, PairWeights


@dataclass(frozen=True)
class PairLoss:
    """The losses f of a tile of pairs (I, J), 0 for pairs that are not positive.

    `by_sum` are their derivatives by the logsumexp lse_i, and `pull` minus their derivatives by the logit.
    """

    value: Tensor
    by_sum: Tensor
    pull: Tensor


class PairwiseWeights(PairWeights):
    """The base class of weights whose pair losses f a subclass defines; `at` returns W' for embeddings."""

    def __init__(self, ranks: BatchRanks) -> None:
        self._ranks = ranks

    @abstractmethod
    def each(self, rows: slice, cols: slice) -> tuple[Tensor, Tensor]:
        """Returns W_ij and W_ji of a tile of rows (I, J), 0 where i = j."""

    @abstractmethod
    def losses(self, weight_IJ: Tensor, x_IJ: Tensor) -> PairLoss:
        """Returns the losses f(W_ip, x_ip) of pairs, with their derivatives."""

    def attract(self, _z_BD: Tensor) -> Tensor:
        """Raises NotImplementedError, since the weights depend on the embeddings: `at` returns them."""
        raise NotImplementedError("the weights follow from the embeddings: call at first")

    def at(self, z_BD: Tensor, lse_N: Tensor, ratio: Number) -> PairWeights:
        """Returns the weights W' for given embeddings, computed in one pass over the tiles."""
        fixed = _FixedWeights(self, z_BD, len(lse_N))
        lse_B = self._ranks.share(lse_N)
        for rows, cols, mirrored in tiling.tiles(z_BD.device, len(lse_N), len(lse_B)):
            u_IJ = (z_BD[rows] @ z_BD[cols].T).mul_(ratio)
            forward_IJ, backward_IJ = self.each(rows, cols)
            forward = self.losses(forward_IJ, lse_B[rows, None] - u_IJ)
            backward = self.losses(backward_IJ, lse_B[cols] - u_IJ)
            fixed.add_losses(rows, forward, lse_B[rows, None], u_IJ, 1)
            if mirrored:
                fixed.add_losses(cols, backward, lse_B[cols], u_IJ, 0)
            fixed.add_product(forward.pull + backward.pull, z_BD, rows, cols, mirrored)
        return fixed


class _FixedWeights(PairWeights):
    """The weights W' of fixed embeddings: their product, and the part of the loss that W' and R' lack."""

    def __init__(self, weights: PairwiseWeights, z_BD: Tensor, own: int) -> None:
        self._weights = weights
        self._product_ND = torch.zeros_like(z_BD[:own])
        self.row_sums = z_BD.new_zeros(own)
        self.constant: Tensor = z_BD.new_zeros(own)

    def add_losses(self, anchors: slice, losses: PairLoss, lse: Tensor, u_IJ: Tensor, axis: int) -> None:
        """Adds the pairs of anchors with candidates along `axis`."""
        self.row_sums[anchors] += losses.by_sum.sum(axis)
        # R'_i lse_i - sum_p W'_ip u_ip is the engine's; its two parts are large, their difference is not.
        rest_IJ = losses.value - losses.by_sum * (lse - u_IJ) + (losses.pull - losses.by_sum) * u_IJ
        self.constant[anchors] += rest_IJ.sum(axis)

    def add_product(self, both_IJ: Tensor, z_BD: Tensor, rows: slice, cols: slice, mirrored: bool) -> None:
        """Adds the product of a tile W'_ij + W'_ji with the embeddings."""
        self._product_ND[rows].addmm_(both_IJ, z_BD[cols])
        if mirrored:
            self._product_ND[cols].addmm_(both_IJ.T, z_BD[rows])

    def positives(self) -> Tensor:
        return self._weights.positives()

    def has_positive(self) -> Tensor:
        return self._weights.has_positive()

    def attract(self, _z_BD: Tensor) -> Tensor:
        return self._product_ND
