"""The hierarchy constraint between levels: weights that follow from the levels' mean losses.

Shapes: N own rows, B rows, H levels, D embedding.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from mlcl.losses.weighting import safe_divide
from mlcl.losses.weights.base import PairWeights, Ranks
from mlcl.losses.weights.paths import Paths


class Constrained(PairWeights):
    """What both granularities compute from the labels; the weights follow once the embeddings are given."""

    def __init__(
        self,
        paths: Paths,
        shares: Sequence[float],
        own: int,
        ranks: Ranks,
        dtype: torch.dtype,
        detach: bool,
    ) -> None:
        self.paths = paths
        self.shares = shares
        self.own = own
        self.ranks = ranks
        self.dtype = dtype
        self.detach = detach
        self.count = paths.counts()

    def positives(self) -> Tensor:
        """|P(i)| (N,), the rows of the coarsest level that has a weight."""
        share_H1 = torch.tensor(self.shares, device=self.count.device)[:, None]
        return (self.count[:, : self.own] * (share_H1 > 0)).amax(0)

    def attract(self, z_BD: Tensor) -> Tensor:
        """Raises NotImplementedError: the weights follow from the embeddings, see `given`."""
        raise NotImplementedError("the weights follow from the embeddings: call given first")


class ConstrainedLevels(Constrained):
    """Levels whose mean loss is below a finer level's take over that level's loss."""

    def given(self, z_BD: Tensor, lse_N: Tensor, ratio: float) -> PairWeights:
        """Each level's loss in closed form, then the share that each level ends up with."""
        levels = [self._level(level) for level in range(self.paths.levels)]
        own_ND = z_BD[: self.own]
        terms = [
            weights.row_sums * lse_N - (weights.attract(z_BD) * own_ND).sum(1) * (ratio / 2)
            for weights in levels
        ]
        # Half of the symmetric product is not each anchor's own term, but the sum over all is the same.
        total_H = self.ranks.share(torch.stack(terms, 1)).sum(0).tolist()
        share, constant = [0.0] * len(levels), 0.0
        source = len(levels) - 1
        for level in reversed(range(len(levels))):
            if total_H[level] >= total_H[source]:
                source = level
            if source == level or not self.detach:
                share[source] += self.shares[level]
            else:
                constant += self.shares[level] * total_H[source] / z_BD.shape[0]
        return _LevelMix(levels, share, self.positives(), constant)

    def _level(self, level: int) -> PairWeights:
        """1 / |P_l| for the pairs of a level alone."""
        weight_HB = torch.zeros(self.count.shape, dtype=self.dtype, device=self.count.device)
        weight_HB[level] = safe_divide(torch.ones_like(weight_HB[level]), self.count[level].to(self.dtype))
        others_N = self.count[level, : self.own]
        return self.paths.weights(weight_HB, (others_N > 0).to(self.dtype), lambda: others_N)


class _LevelMix(PairWeights):
    def __init__(
        self, levels: list[PairWeights], shares: list[float], positives_N: Tensor, constant: float
    ) -> None:
        self._parts = [(share, weights) for share, weights in zip(shares, levels, strict=True) if share]
        self._positives_N = positives_N
        self.row_sums = torch.zeros_like(levels[0].row_sums)
        for share, weights in self._parts:
            self.row_sums += share * weights.row_sums
        self.constant = torch.full_like(self.row_sums, constant)

    def positives(self) -> Tensor:
        return self._positives_N

    def attract(self, z_BD: Tensor) -> Tensor:
        total_ND = z_BD.new_zeros(len(self.row_sums), z_BD.shape[1])
        for share, weights in self._parts:
            total_ND.add_(weights.attract(z_BD), alpha=share)
        return total_ND
