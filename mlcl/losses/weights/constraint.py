"""The hierarchy constraint: weights that follow from the pair losses, through each level's largest.

Shapes: N own rows, B rows, H levels, D embedding; I, J tiles of rows that share a coarse group.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from mlcl.losses import tiling
from mlcl.losses.paths import same_group
from mlcl.losses.weighting import safe_divide
from mlcl.losses.weights.base import PairWeights, Ranks
from mlcl.losses.weights.incidence import IncidenceWeights, group_sizes, group_weights


class _Constrained(PairWeights):
    """What both granularities have before they know the embeddings."""

    def __init__(
        self,
        groups_HB: Tensor,
        shares: Sequence[float],
        own: int,
        ranks: Ranks,
        dtype: torch.dtype,
        detach: bool,
    ) -> None:
        self.groups = groups_HB
        self.shares = shares
        self.own = own
        self.ranks = ranks
        self.dtype = dtype
        self.detach = detach
        self.count = torch.stack([(group_sizes(group_B) - 1).clamp(min=0) for group_B in groups_HB])

    def positives(self) -> Tensor:
        """|P(i)| (N,), the rows of the coarsest level."""
        share_H1 = torch.tensor(self.shares, device=self.count.device)[:, None]
        return (self.count[:, : self.own] * (share_H1 > 0)).amax(0)

    def attract(self, z_BD: Tensor) -> Tensor:
        """Not known before the embeddings are."""
        raise NotImplementedError("the weights follow from the embeddings: call given first")


class ConstrainedLevels(_Constrained):
    """Levels whose mean loss is below a finer level's take over that level's loss."""

    def given(self, z_BD: Tensor, lse_N: Tensor, tau: float) -> PairWeights:
        """Each level's loss in closed form, then the share that each level ends up with."""
        levels = [group_weights(group_B, self.own, self.dtype) for group_B in self.groups]
        own_ND = z_BD[: self.own]
        terms = [
            weights.row_sums * lse_N - (weights.attract(z_BD) * own_ND).sum(1) / (2 * tau)
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


class _LevelMix(PairWeights):
    def __init__(
        self, levels: list[IncidenceWeights], shares: list[float], positives_N: Tensor, constant: float
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


@dataclass(frozen=True)
class _Tile:
    """Row numbers of a tile, and per level which of its pairs are positive."""

    rows: Tensor
    cols: Tensor
    positive: list[Tensor]


class ConstrainedPairs(_Constrained):
    """Pair losses below the largest of the finer levels are raised to it.

    Three passes over the tiles in which rows share a coarse group, the only ones with positives: the largest
    losses; the weights' row sums; the product.
    """

    def given(self, z_BD: Tensor, lse_N: Tensor, tau: float) -> PairWeights:
        """The weights once the raised pairs are known: each gives its share to the largest pair."""
        lse_B = self.ranks.share(lse_N)
        loss_HN, partner_HN = self._largest(z_BD, lse_B, tau)
        loss_BH = self.ranks.share(loss_HN.T)
        partner_BH = self.ranks.local_rows(self.ranks.share(self.ranks.global_rows(partner_HN.T)))
        largest_H, anchor_H = loss_BH.max(0)
        floors, source = _floors(largest_H.tolist())
        raised = _RaisedPairs(self, lse_B, tau, floors)
        raised_NH = raised.measure(z_BD)
        if self.detach:
            floor_H = torch.tensor(
                [max(floor, 0.0) for floor in floors], dtype=self.dtype, device=z_BD.device
            )
            raised.constant = raised_NH @ floor_H
            return raised
        mass_H = self.ranks.share(raised_NH).sum(0)
        for level, finer in enumerate(source):
            if finer is not None:
                anchor = int(anchor_H[finer])
                raised.add_pair(anchor, int(partner_BH[anchor, finer]), mass_H[level])
        return raised

    def tiles(self) -> Iterator[_Tile]:
        """Tiles of own rows with all rows, both sorted by coarse group, where the groups meet."""
        coarse_B = self.groups[0]
        order_B = coarse_B.argsort(stable=True)
        order_B = order_B[int((coarse_B < 0).sum()) :]
        own_rows, all_rows = (
            torch.split(part, tiling.TILE) for part in (order_B[order_B < self.own], order_B)
        )
        ends = [coarse_B[part[[0, -1]]].tolist() for part in all_rows if len(part)]
        for rows in own_rows:
            if not len(rows):
                continue
            low, high = coarse_B[rows[[0, -1]]].tolist()
            for cols, (first, last) in zip(all_rows, ends, strict=True):
                if first <= high and low <= last:
                    other_IJ = rows[:, None] != cols
                    same = [same_group(group_B, rows, cols) & other_IJ for group_B in self.groups]
                    yield _Tile(rows, cols, same)

    def _largest(self, z_BD: Tensor, lse_B: Tensor, tau: float) -> tuple[Tensor, Tensor]:
        """For each level and own anchor its largest pair loss (H, N), and with which row; -inf where none."""
        loss_HN = z_BD.new_full((len(self.groups), self.own), -torch.inf)
        partner_HN = torch.zeros_like(loss_HN, dtype=torch.int64)
        for tile in self.tiles():
            loss_IJ = lse_B[tile.rows, None] - (z_BD[tile.rows] / tau) @ z_BD[tile.cols].T
            for level, positive_IJ in enumerate(tile.positive):
                value_I, place_I = loss_IJ.masked_fill(~positive_IJ, -torch.inf).max(1)
                better_I = value_I > loss_HN[level, tile.rows]
                rows = tile.rows[better_I]
                loss_HN[level, rows] = value_I[better_I]
                partner_HN[level, rows] = tile.cols[place_I[better_I]]
        return loss_HN, partner_HN


def _floors(largest: list[float]) -> tuple[list[float], list[int | None]]:
    """For each level M_{l+1}, the largest loss of the finer levels, and the level that it is of."""
    floors = [-float("inf")] * len(largest)
    source: list[int | None] = [None] * len(largest)
    best: int | None = None
    for level in reversed(range(len(largest))):
        if best is not None:
            floors[level], source[level] = largest[best], best
        if largest[level] > (largest[best] if best is not None else -float("inf")):
            best = level
    return floors, source


class _RaisedPairs(PairWeights):
    """A_ip = sum_l share_l / |P_l(i)| 1[p in P_l(i), l_ip >= M_{l+1}], plus what is raised to this pair."""

    def __init__(self, levels: ConstrainedPairs, lse_B: Tensor, tau: float, floors: list[float]) -> None:
        self._levels = levels
        self._lse_B = lse_B
        self._tau = tau
        # A pair is met from both of its ends, which round apart: those at the floor must be kept by both.
        slack = 64 * torch.finfo(levels.dtype).eps
        self._floors = [floor - slack * (1 + abs(floor)) for floor in floors]
        share_H1 = torch.tensor(levels.shares, dtype=levels.dtype, device=lse_B.device)[:, None]
        self._each_HB = safe_divide(share_H1, levels.count.to(levels.dtype))
        self._pairs: list[tuple[int, int, Tensor]] = []
        self.row_sums = lse_B.new_zeros(levels.own)

    def positives(self) -> Tensor:
        return self._levels.positives()

    def measure(self, z_BD: Tensor) -> Tensor:
        """Fills in the row sums; gives the weight of each own anchor's raised pairs, by level (N, H)."""
        raised_HN = torch.zeros_like(self._each_HB[:, : len(self.row_sums)])
        for tile in self._levels.tiles():
            loss_IJ = self._lse_B[tile.rows, None] - (z_BD[tile.rows] / self._tau) @ z_BD[tile.cols].T
            for level, positive_IJ in enumerate(tile.positive):
                kept_I = (positive_IJ & (loss_IJ >= self._floors[level])).sum(1)
                each_I = self._each_HB[level, tile.rows]
                self.row_sums[tile.rows] += each_I * kept_I
                raised_HN[level, tile.rows] += each_I * (positive_IJ.sum(1) - kept_I)
        return raised_HN.T

    def add_pair(self, anchor: int, partner: int, mass: Tensor) -> None:
        """Lets a pair have the weight of those that are raised to it."""
        self._pairs.append((anchor, partner, mass))
        if anchor < len(self.row_sums):
            self.row_sums[anchor] += mass

    def attract(self, z_BD: Tensor) -> Tensor:
        own = len(self.row_sums)
        sum_ND = z_BD.new_zeros(own, z_BD.shape[1])
        for tile in self._levels.tiles():
            logit_IJ = (z_BD[tile.rows] / self._tau) @ z_BD[tile.cols].T
            weight_IJ = self._weights(tile, logit_IJ)
            sum_ND.index_add_(0, tile.rows, weight_IJ @ z_BD[tile.cols])
        for anchor, partner, mass in self._pairs:
            for one, other in ((anchor, partner), (partner, anchor)):
                if one < own:
                    sum_ND[one] += mass * z_BD[other]
        return sum_ND

    def _weights(self, tile: _Tile, logit_IJ: Tensor) -> Tensor:
        """A_ij + A_ji."""
        there_IJ = self._lse_B[tile.rows, None] - logit_IJ
        back_IJ = self._lse_B[tile.cols] - logit_IJ
        weight_IJ = torch.zeros_like(logit_IJ)
        for level, positive_IJ in enumerate(tile.positive):
            floor, each_B = self._floors[level], self._each_HB[level]
            weight_IJ += (positive_IJ & (there_IJ >= floor)) * each_B[tile.rows, None]
            weight_IJ += (positive_IJ & (back_IJ >= floor)) * each_B[tile.cols]
        return weight_IJ
