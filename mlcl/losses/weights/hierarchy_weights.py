"""The hierarchy constraint between pairs: weights that follow from the pair losses, by each level's largest.

Shapes: N own rows, B rows, H levels, D embedding; I, J of a tile.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate, pairwise

import torch
from torch import Tensor

from mlcl.losses import tiling
from mlcl.losses.weighting import safe_divide
from mlcl.losses.weights.base import PairWeights
from mlcl.losses.weights.constraint import Constrained
from mlcl.losses.weights.paths import Paths


@dataclass(frozen=True)
class _Tile:
    """Row numbers of a tile, and at how many levels each of its pairs is positive (I, J).

    `mirrored`: the columns are own anchors too, whose pairs with the rows are in no other tile.
    """

    rows: Tensor
    cols: Tensor
    depth: Tensor
    mirrored: bool

    def logits(self, z_BD: Tensor, ratio: float) -> Tensor:
        """ratio z_i . z_j (I, J), which rounds like that of j and i."""
        return (z_BD[self.rows] @ z_BD[self.cols].T).mul_(ratio)

    def losses(self, logit_IJ: Tensor, lse_B: Tensor) -> Iterator[tuple[Tensor, int, Tensor]]:
        """For each end of the pairs that holds own anchors: these, the axis of the other end, and l."""
        yield self.rows, 1, lse_B[self.rows, None] - logit_IJ
        if self.mirrored:
            yield self.cols, 0, lse_B[self.cols] - logit_IJ


class ConstrainedPairs(Constrained):
    """Pair losses below the largest of the finer levels are raised to it.

    Three passes over the tiles in which rows share a level, the only ones with positives: the largest losses;
    the weights' row sums; the product.
    """

    def given(self, z_BD: Tensor, lse_N: Tensor, ratio: float) -> PairWeights:
        """The weights once the raised pairs are known: each gives its share to the largest pair."""
        lse_B = self.ranks.share(lse_N)
        loss_BH = self.ranks.share(self._largest(z_BD, lse_B, ratio))
        largest_H = loss_BH.amax(0)
        floors, source = _floors(largest_H.tolist())
        reach = ratio * float(z_BD.square().sum(1).max())
        raised = _RaisedPairs(self, lse_B, ratio, floors, reach)
        raised_NH = raised.measure(z_BD)
        if self.detach:
            floor_H = torch.tensor(
                [max(floor, 0.0) for floor in floors], dtype=self.dtype, device=z_BD.device
            )
            raised.constant = raised_NH @ floor_H
            return raised
        mass_H = self.ranks.share(raised_NH).sum(0)
        for level in sorted({level for level in source if level is not None}):
            mass = torch.stack(
                [mass_H[coarse] for coarse, finer in enumerate(source) if finer == level]
            ).sum()
            anchor = self._first(loss_BH[:, level] == largest_H[level])
            raised.add_pair(anchor, self._partner(anchor, level, z_BD, lse_B, ratio), mass)
        return raised

    @cached_property
    def _sorted(self) -> tuple[Paths, Tensor, list[slice], list[slice]]:
        """The rows that know a level, sorted so that those that share one are together: their paths and
        numbers, and the runs of own and of other rows."""
        order_B = self.paths.key.argsort(stable=True)
        order_B = order_B[int((self.paths.key < 0).sum()) :]
        own, other = order_B[order_B < self.own], order_B[order_B >= self.own]
        order_B = torch.cat([own, other])
        runs = _runs(self.paths.key[own], 0), _runs(self.paths.key[other], len(own))
        return self.paths.take(order_B), order_B, *runs

    def tiles(self) -> Iterable[_Tile]:
        """Tiles of own rows with all rows where pairs share a level. Few are kept, many made anew."""
        return self._kept if self.own * self.count.shape[1] <= tiling.KEPT else self._made()

    @cached_property
    def _kept(self) -> list[_Tile]:
        return list(self._made())

    def _made(self) -> Iterator[_Tile]:
        paths, order_B, own_runs, other_runs = self._sorted
        for number, rows in enumerate(own_runs):
            for place, cols in enumerate(own_runs[number:] + other_runs):
                depth_IJ = paths.depth(rows, cols)
                if place == 0:
                    depth_IJ.fill_diagonal_(0)
                if depth_IJ.amax() > 0:
                    yield _Tile(order_B[rows], order_B[cols], depth_IJ, 0 < place < len(own_runs) - number)

    def _largest(self, z_BD: Tensor, lse_B: Tensor, ratio: float) -> Tensor:
        """For each own anchor and level its largest pair loss (N, H); -inf where it has none."""
        loss_HN = z_BD.new_full((self.paths.levels, self.own), -torch.inf)
        for tile in self.tiles():
            for anchors, axis, loss_IJ in tile.losses(tile.logits(z_BD, ratio), lse_B):
                # From coarse to fine ever fewer pairs are left.
                for level, loss_N in enumerate(loss_HN):
                    loss_IJ.masked_fill_(tile.depth <= level, -torch.inf)
                    loss_N[anchors] = torch.maximum(loss_N[anchors], loss_IJ.amax(axis))
        return loss_HN.T.contiguous()

    def _partner(self, anchor: int, level: int, z_BD: Tensor, lse_B: Tensor, ratio: float) -> int:
        """The row with which the anchor has its largest loss at a level, computed by the anchor's process."""
        chosen_N1 = self.count.new_zeros(self.own, 1)
        if anchor < self.own:
            depth_B = self.paths.depth(slice(anchor, anchor + 1), slice(0, len(z_BD)))[0]
            depth_B[anchor] = 0
            loss_B = lse_B[anchor] - z_BD @ z_BD[anchor] * ratio
            loss_B.masked_fill_(depth_B <= level, -torch.inf)
            chosen_N1[anchor] = self.ranks.global_rows(loss_B.argmax())
        return int(self.ranks.local_rows(self.ranks.share(chosen_N1)[anchor, 0]))

    def _first(self, wanted_B: Tensor) -> int:
        """The first of the wanted rows in the order of ranks, so that every process finds the same."""
        return int(self.ranks.local_rows(self.ranks.global_rows(wanted_B.nonzero()[:, 0]).min()))


def _runs(key: Tensor, start: int) -> list[slice]:
    """Rows with sorted keys, the first of which is row `start`, in runs of at most a tile.

    Rows of one key are cut only where they are more than a run, so that few runs have a key in common.
    """
    size, lengths, length = tiling.edge(key.device), [], 0
    for count in torch.unique_consecutive(key, return_counts=True)[1].tolist():
        if length + count > size and length:
            lengths.append(length)
            length = 0
        length += count
        lengths += [size] * ((length - 1) // size)
        length -= size * ((length - 1) // size)
    ends = accumulate([*lengths, length], initial=start)
    return [slice(first, last) for first, last in pairwise(ends) if first < last]


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

    def __init__(
        self, levels: ConstrainedPairs, lse_B: Tensor, ratio: float, floors: list[float], reach: float
    ) -> None:
        self._levels = levels
        self._lse_B = lse_B
        self._ratio = ratio
        # A pair is met from both of its ends, which round apart: those at the floor must be kept by both.
        slack = 4 * torch.finfo(levels.dtype).eps
        self._floors = [floor - slack * (reach + abs(floor)) for floor in floors]
        share_H1 = torch.tensor(levels.shares, dtype=levels.dtype, device=lse_B.device)[:, None]
        self._each_HB = safe_divide(share_H1, levels.count.to(levels.dtype))
        self._pairs: list[tuple[int, int, Tensor]] = []
        self.row_sums = lse_B.new_zeros(levels.own)

    def positives(self) -> Tensor:
        return self._levels.positives()

    def measure(self, z_BD: Tensor) -> Tensor:
        """Fills in the row sums; gives the weight of each own anchor's raised pairs, by level (N, H)."""
        own = len(self.row_sums)
        kept_HN = torch.zeros_like(self._each_HB[:, :own])
        for tile in self._levels.tiles():
            for anchors, axis, loss_IJ in tile.losses(tile.logits(z_BD, self._ratio), self._lse_B):
                for level, kept_N in enumerate(kept_HN):
                    kept_N[anchors] += self._kept(loss_IJ, tile, level).sum(axis)
        each_HN = self._each_HB[:, :own]
        self.row_sums += (each_HN * kept_HN).sum(0)
        return (each_HN * (self._levels.count[:, :own] - kept_HN)).T.contiguous()

    def add_pair(self, anchor: int, partner: int, mass: Tensor) -> None:
        """Adds to a pair the weight of the pairs that are raised to it."""
        self._pairs.append((anchor, partner, mass))
        if anchor < len(self.row_sums):
            self.row_sums[anchor] += mass

    def attract(self, z_BD: Tensor) -> Tensor:
        own = len(self.row_sums)
        sum_ND = z_BD.new_zeros(own, z_BD.shape[1])
        for tile in self._levels.tiles():
            weight_IJ = self._weights(tile, tile.logits(z_BD, self._ratio))
            sum_ND.index_add_(0, tile.rows, weight_IJ @ z_BD[tile.cols])
            if tile.mirrored:
                sum_ND.index_add_(0, tile.cols, weight_IJ.T @ z_BD[tile.rows])
        for anchor, partner, mass in self._pairs:
            for one, other in ((anchor, partner), (partner, anchor)):
                if one < own:
                    sum_ND[one] += mass * z_BD[other]
        return sum_ND

    def _weights(self, tile: _Tile, logit_IJ: Tensor) -> Tensor:
        """A_ij + A_ji."""
        weight_IJ = torch.zeros_like(logit_IJ)
        for lse, each_HX in (
            (self._lse_B[tile.rows, None], self._each_HB[:, tile.rows, None]),
            (self._lse_B[tile.cols], self._each_HB[:, tile.cols]),
        ):
            loss_IJ = lse - logit_IJ
            for level, each_X in enumerate(each_HX):
                weight_IJ.addcmul_(self._kept(loss_IJ, tile, level).to(loss_IJ.dtype), each_X)
        return weight_IJ

    def _kept(self, loss_IJ: Tensor, tile: _Tile, level: int) -> Tensor:
        """Which pairs are positive at the level and not raised (I, J)."""
        positive_IJ = tile.depth > level
        return positive_IJ & (loss_IJ >= self._floors[level]) if self._floors[level] > 0 else positive_IJ
