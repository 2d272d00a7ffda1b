"""The hierarchy constraint of HiConE and HiMulConE, and its form for the mean losses of levels.

Shapes: N own rows, B rows, H levels, D embedding.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from mlcl.losses.dense import safe_divide
from mlcl.losses.tiling import is_host
from mlcl.losses.weights.base import BatchRanks, Number, PairWeights
from mlcl.losses.weights.several_paths import Paths


class Constrained(PairWeights):
    """The base class for both granularities: it holds what depends on labels.

    `with_embeddings` returns the weights.
    """

    def __init__(self, paths: Paths, shares: Sequence[float], ranks: BatchRanks, detach: bool) -> None:
        self.paths, self.ranks, self.detach = paths, ranks, detach
        self.own, self.dtype = ranks.own, ranks.dtype
        self.share_H = torch.tensor(shares, dtype=self.dtype)
        self.count = paths.counts()

    def has_positive(self) -> Tensor:
        """Whether each own anchor has a positive at a level with a weight above 0, as bool (N,)."""
        return ((self.count[:, : self.own] > 0) & (self.share_H[:, None] > 0)).any(0)


class ConstrainedLevels(Constrained):
    """The constraint between levels: a level's mean loss is at least the largest one of the finer levels."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._levels = [self._level_weights(level) for level in range(self.paths.levels)]

    def to(self, device: torch.device) -> PairWeights:
        """Moves all tensors to a device, also those of each level's weights, and returns the object."""
        for weights in self._levels:
            weights.to(device)
        return super().to(device)

    def with_embeddings(self, z_BD: Tensor, lse_N: Tensor, ratio: Number) -> PairWeights:
        """Computes each level's loss in closed form, and returns weights with the constraint.

        A level whose loss is smaller than that of a finer level gives its share to the finer level with the
        largest loss; with `detach` its loss becomes a constant instead.
        """
        levels = self._levels
        z_ND = z_BD[: self.own]
        terms = [
            weights.row_sums * lse_N - (weights.attract(z_BD) * z_ND).sum(1) * (ratio / 2)
            for weights in levels
        ]
        # Half of the symmetric product is not each anchor's own term, but sums to the same over all anchors.
        total_H = self.ranks.share(torch.stack(terms, 1)).sum(0)
        # For each level, which of it and the finer levels has the largest loss; of equal ones the coarsest.
        finer_HH = torch.ones(len(levels), len(levels), dtype=torch.bool, device=z_BD.device).triu()
        source_H = torch.where(finer_HH, total_H, -torch.inf).argmax(1)
        if not self.detach:
            share_H = torch.zeros_like(self.share_H).index_add_(0, source_H, self.share_H)
            return _LevelMix(levels, share_H)
        moved_H = source_H != torch.arange(len(levels), device=z_BD.device)
        constant = (self.share_H * total_H[source_H] * moved_H).sum() / z_BD.shape[0]
        return _LevelMix(levels, self.share_H.masked_fill(moved_H, 0), constant)

    def _level_weights(self, level: int) -> PairWeights:
        """Returns the weights 1 / |P_l(i)| of the pairs of one level."""
        weight_HB = torch.zeros(self.count.shape, dtype=self.dtype, device=self.count.device)
        weight_HB[level] = safe_divide(torch.ones_like(weight_HB[level]), self.count[level].to(self.dtype))
        return self.paths.weights(weight_HB, (self.count[level, : self.own] > 0).to(self.dtype))


class _LevelMix(PairWeights):
    def __init__(self, levels: list[PairWeights], share_H: Tensor, constant: Tensor | None = None) -> None:
        on_host = is_host(share_H.device)
        self._parts = [
            (share, weights) for share, weights in zip(share_H, levels, strict=True) if not on_host or share
        ]
        self.row_sums = torch.zeros_like(levels[0].row_sums)
        for share, weights in self._parts:
            self.row_sums += share * weights.row_sums
        self.constant = None if constant is None else constant.expand(len(self.row_sums))

    def attract(self, z_BD: Tensor) -> Tensor:
        total_ND = z_BD.new_zeros(len(self.row_sums), z_BD.shape[1])
        for share, weights in self._parts:
            total_ND.addcmul_(weights.attract(z_BD), share)
        return total_ND
