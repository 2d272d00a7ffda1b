"""Losses of pairs other than -log p_ip, for the tiled engine.

With x_ip = lse_i - s_ip / tau, a loss L_i = sum_p f_i(W_ip, x_ip) and its gradient are those of weights W'
and row sums R' that follow from the embeddings: W'_ip is minus the derivative of f with respect to the
logit s_ip / tau, and R'_i the sum over p of its derivatives with respect to lse_i. They are computed tile by
tile: memory stays O(B D).

Shapes: N own rows, B rows, D embedding, L prototypes, M labels of the own rows; I, J of a tile.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

import torch
from torch import Tensor

from mlcl.labels import LabelRows
from mlcl.losses import tiling
from mlcl.losses.weights.base import BatchRanks, Number, PairWeights
from mlcl.losses.weights.label_shares import LabelShares
from mlcl.losses.weights.overlap import OverlapWeights


@dataclass(frozen=True)
class PairLoss:
    """The losses f of a tile of pairs (I, J), 0 for pairs that are not positive.

    `by_sum` are their derivatives with respect to the logsumexp lse_i, and `pull` minus their derivatives
    with respect to the logit.
    """

    value: Tensor
    by_sum: Tensor
    pull: Tensor

    def remainder(self, lse: Tensor, u: Tensor) -> Tensor:
        """Returns the losses minus the engine's R' lse - W' u, computed from lse - u: both may be large."""
        return self.value - self.by_sum * (lse - u) + (self.pull - self.by_sum) * u


class PairwiseWeights(PairWeights, ABC):
    """The base class of weights whose pair losses f a subclass defines.

    `with_embeddings` returns W' for embeddings. `label_weights` are the weights W, which follow
    from labels alone.
    """

    def __init__(self, label_weights: OverlapWeights | LabelShares, ranks: BatchRanks) -> None:
        self._label_weights, self._ranks = label_weights, ranks
        self.row_sums = label_weights.row_sums

    def has_positive(self) -> Tensor:
        """Whether each own anchor has a positive, which may be a row or a prototype, as bool (N,)."""
        return self._label_weights.has_positive()

    @abstractmethod
    def losses(self, weight: Tensor, x: Tensor, row_sum: Tensor) -> PairLoss:
        """Returns the losses f_i(W_ip, x_ip) of pairs, with their derivatives; `row_sum` are the R_i."""

    def with_embeddings(self, z_BD: Tensor, lse_N: Tensor, ratio: Number) -> PairWeights:
        """Returns the weights W' for given embeddings, computed in one pass over the tiles."""
        lse_B, row_sum_B = self._ranks.share(torch.stack([lse_N, self.row_sums], 1)).unbind(1)
        rows, queued = len(lse_B), self._ranks.queued
        fixed = _FixedWeights(z_BD, len(lse_N), rows)
        for i, j, mirrored in tiling.tiles(z_BD.device, len(lse_N), rows, n_queued=queued):
            u_IJ = (z_BD[i] @ z_BD[j].T).mul_(ratio)
            forward_IJ, backward_IJ = self._label_weights.directed_weights(i, j)
            if i == j:
                forward_IJ.fill_diagonal_(0)
                backward_IJ.fill_diagonal_(0)
            forward = self.losses(forward_IJ, lse_B[i, None] - u_IJ, row_sum_B[i, None])
            backward = self.losses(backward_IJ, lse_B[j] - u_IJ, row_sum_B[j])
            fixed.row_sums[i] += forward.by_sum.sum(1)
            fixed.constant[i] += forward.remainder(lse_B[i, None], u_IJ).sum(1)
            if mirrored:
                fixed.row_sums[j] += backward.by_sum.sum(0)
                fixed.constant[j] += backward.remainder(lse_B[j], u_IJ).sum(0)
            pull_IJ = forward.pull + backward.pull
            fixed.product[i].addmm_(pull_IJ, z_BD[j])
            if j.start >= rows - queued:
                fixed.queue_product[i].addmm_(pull_IJ, z_BD[j])
            if mirrored:
                fixed.product[j].addmm_(pull_IJ.T, z_BD[i])
        of_prototypes = (
            self._label_weights.of_prototypes() if isinstance(self._label_weights, LabelShares) else None
        )
        if of_prototypes is not None:
            self._add_prototypes(fixed, *of_prototypes, z_BD, lse_N, ratio)
        return fixed

    def _add_prototypes(
        self,
        fixed: _FixedWeights,
        labels: LabelRows,
        weight_M: Tensor,
        z_BD: Tensor,
        lse_N: Tensor,
        ratio: Number,
    ) -> None:
        """Adds to `fixed` the pairs of own rows with the prototypes of their labels."""
        prototype_LD, size = z_BD[-labels.width :], tiling.tile_size(z_BD.device)
        for top in range(0, len(lse_N), size):
            rows = slice(top, min(top + size, len(lse_N)))
            first, last = labels.known_offsets[[rows.start, rows.stop]].tolist()
            label_m, offsets = labels.part(rows)
            row_m = top + torch.repeat_interleave(offsets.diff(), output_size=last - first)
            z_mD, c_mD = z_BD[row_m], prototype_LD[label_m]
            u_m, lse_m = (z_mD * c_mD).sum(1).mul_(ratio), lse_N[row_m]
            loss = self.losses(weight_M[first:last], lse_m - u_m, self.row_sums[row_m])
            fixed.row_sums.index_add_(0, row_m, loss.by_sum)
            fixed.constant.index_add_(0, row_m, loss.remainder(lse_m, u_m))
            fixed.product.index_add_(0, row_m, loss.pull[:, None] * c_mD)
            fixed.prototype_product.index_add_(0, label_m, loss.pull[:, None] * z_mD)


class _FixedWeights(PairWeights):
    """The weights W' of fixed embeddings: their products, and the part of the loss that W' and R' lack."""

    def __init__(self, z_BD: Tensor, own: int, rows: int) -> None:
        self.product, self.prototype_product = torch.zeros_like(z_BD[:own]), torch.zeros_like(z_BD[rows:])
        self.queue_product = torch.zeros_like(self.product)
        self.row_sums = z_BD.new_zeros(own)
        self.constant: Tensor = z_BD.new_zeros(own)

    def attract(self, _z_BD: Tensor) -> Tensor:
        return self.product

    def attract_queue(self, _z_BD: Tensor, _queue: slice) -> Tensor:
        return self.queue_product

    def attract_prototypes(self, _z_BD: Tensor) -> Tensor:
        return self.prototype_product
