"""The hierarchy constraint between pairs, with weights from the pair losses and each level's largest loss.

Shapes: N own rows, B rows, H levels, D embedding; I, J of a tile.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate, pairwise
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from mlcl.losses import tiling
from mlcl.losses.dense import safe_divide
from mlcl.losses.weights.base import Number, PairWeights
from mlcl.losses.weights.constraint import Constrained


@dataclass(frozen=True)
class _Tile:
    """A tile of pairs: its row numbers, and the number of levels at which each pair is positive (I, J).

    `mirrored` says that the columns are own anchors, too, and that no other tile has the pairs of columns
    with rows.
    """

    rows: Tensor
    cols: Tensor
    depth: Tensor
    mirrored: bool

    def logits(self, z_BD: Tensor, ratio: Number) -> Tensor:
        """Returns the logits `ratio` * (z_i . z_j) (I, J); those of (i, j) and (j, i) round equally."""
        return (z_BD[self.rows] @ z_BD[self.cols].T).mul_(ratio)

    def losses(self, logit_IJ: Tensor, lse_B: Tensor) -> Iterator[tuple[Tensor, int, Tensor]]:
        """Yields anchors, the axis of their candidates, and the pair losses (I, J).

        They are yielded for the rows as anchors, and then, for a mirrored tile, for the columns as anchors.
        """
        yield self.rows, 1, lse_B[self.rows, None] - logit_IJ
        if self.mirrored:
            yield self.cols, 0, lse_B[self.cols] - logit_IJ


class ConstrainedPairs(Constrained):
    """The constraint between pairs: a pair's loss is at least the largest pair loss of the finer levels.

    It takes two passes over the tiles in which rows share a level, since only these have positives: for the
    largest losses, and for the weights' row sums and product.
    """

    def with_embeddings(self, z_BD: Tensor, lse_N: Tensor, ratio: Number) -> PairWeights:
        """Returns the weights for given embeddings; the weight of a raised pair goes to another pair.

        The other pair has the largest loss of the finer levels. With `detach` the raised loss is a constant
        instead.
        """
        lse_B = self.ranks.share(lse_N)
        loss_BH = self.ranks.share(self._largest_losses(z_BD, lse_B, ratio))
        largest_H = loss_BH.amax(0)
        floor_H, source_H = _find_floors(largest_H)
        raised = _RaisedPairs(self, z_BD, lse_B, ratio, floor_H)
        raised_NH = raised.fill()
        if self.detach:
            raised.constant = raised_NH @ floor_H.clamp(min=0)
            return raised
        # If no finer level has a loss, no pair is raised, and the arbitrary source gets no weight.
        mass_H = torch.zeros_like(largest_H).index_add_(0, source_H, self.ranks.share(raised_NH).sum(0))
        anchor_H = self._first_rows(loss_BH == largest_H)
        raised.add_pairs(anchor_H, self._partners(anchor_H, z_BD, lse_B, ratio), mass_H)
        return raised

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        # The rows with a known level, sorted so that rows that share a level are together: their numbers and
        # paths, and the runs of own and of other rows.
        key_B = self.paths.key
        order_B = key_B.argsort(stable=True)
        order_B = order_B[int((key_B < 0).sum()) :]
        own_rows, other_rows = order_B[order_B < self.own], order_B[order_B >= self.own]
        self._order_B = torch.cat([own_rows, other_rows])
        self._sorted_paths = self.paths.take(self._order_B)
        size = tiling.tile_size(self.ranks.device or key_B.device)
        self._own_runs = _cut_runs(key_B[own_rows], 0, size)
        self._runs = self._own_runs + _cut_runs(key_B[other_rows], len(own_rows), size)
        self._may_share = self._sorted_paths.may_share(self._runs)

    def tiles(self) -> Iterable[_Tile]:
        """Returns the tiles of own rows in which pairs may share a level; keeps them if they are few."""
        return self._kept_tiles if self.own * self.count.shape[1] <= tiling.KEPT else self._make_tiles()

    @cached_property
    def _kept_tiles(self) -> list[_Tile]:
        return list(self._make_tiles())

    def _make_tiles(self) -> Iterator[_Tile]:
        order_B, n_own_runs = self._order_B, len(self._own_runs)
        for i, rows in enumerate(self._own_runs):
            for j, cols in enumerate(self._runs[i:], i):
                if not self._may_share[i][j]:
                    continue
                depth_IJ = self._sorted_paths.depth(rows, cols)
                if i == j:
                    depth_IJ.fill_diagonal_(0)
                yield _Tile(order_B[rows], order_B[cols], depth_IJ, i < j < n_own_runs)

    def _largest_losses(self, z_BD: Tensor, lse_B: Tensor, ratio: Number) -> Tensor:
        """Returns the largest pair loss of each own anchor at each level (N, H); -inf without a positive."""
        loss_HN = z_BD.new_full((self.paths.levels, self.own), -torch.inf)
        for tile in self.tiles():
            for anchors, axis, loss_IJ in tile.losses(tile.logits(z_BD, ratio), lse_B):
                # Levels go from coarse to fine, so a pair that is excluded stays excluded.
                for level, loss_N in enumerate(loss_HN):
                    loss_IJ.masked_fill_(tile.depth <= level, -torch.inf)
                    loss_N[anchors] = torch.maximum(loss_N[anchors], loss_IJ.amax(axis))
        return loss_HN.T.contiguous()

    def _partners(self, anchor_H: Tensor, z_BD: Tensor, lse_B: Tensor, ratio: Number) -> Tensor:
        """Returns the row with which each level's anchor has its largest loss at that level (H,).

        All processes use the result of the anchor's own process, since products of rows in another order
        round differently.
        """
        depth_HB = self.paths.depth_of(anchor_H).scatter_(1, anchor_H[:, None], 0)
        loss_HB = lse_B[anchor_H, None] - (z_BD[anchor_H] @ z_BD.T).mul_(ratio)
        level_H1 = torch.arange(len(anchor_H), device=z_BD.device)[:, None]
        partner_H = self.ranks.global_rows(loss_HB.masked_fill_(depth_HB <= level_H1, -torch.inf).argmax(1))
        row_N1 = torch.arange(self.own, device=z_BD.device)[:, None]
        partner_BH = self.ranks.share(torch.where(row_N1 == anchor_H, partner_H, 0))
        return self.ranks.local_rows(partner_BH.gather(0, anchor_H[None])[0])

    def _first_rows(self, match_BH: Tensor) -> Tensor:
        """Returns the first row that is wanted at each level (H,), first in the order of ranks."""
        global_B = self.ranks.global_rows(torch.arange(len(match_BH), device=match_BH.device))
        return self.ranks.local_rows(torch.where(match_BH, global_B[:, None], len(match_BH) - 1).amin(0))


def _cut_runs(key: Tensor, start: int, size: int) -> list[slice]:
    """Cuts rows with sorted keys, numbered from `start`, into runs of at most `size`.

    Rows with equal keys are divided only if there are more than `size`, so that few runs share a key.
    """
    lengths, length = [], 0
    for count in torch.unique_consecutive(key, return_counts=True)[1].tolist():
        if length + count > size and length:
            lengths.append(length)
            length = 0
        length += count
        lengths += [size] * ((length - 1) // size)
        length -= size * ((length - 1) // size)
    ends = accumulate([*lengths, length], initial=start)
    return [slice(first, last) for first, last in pairwise(ends) if first < last]


def _find_floors(largest_H: Tensor) -> tuple[Tensor, Tensor]:
    """Returns, for each level, the largest loss M_{l+1} of finer levels, and the level that has it (H,).

    In a tie the finest level is returned; if no finer level has a loss, -inf and an arbitrary level.
    """
    levels = len(largest_H)
    finer_HH = torch.ones(levels, levels, dtype=torch.bool, device=largest_H.device).tril(-1)
    floor_H, level_H = torch.where(finer_HH, largest_H.flip(0), -torch.inf).max(1)
    return floor_H.flip(0), levels - 1 - level_H.flip(0)


class _RaisedPairs(PairWeights):
    """The weights A_ip = sum_l share_l / |P_l(i)| 1[p in P_l(i), l_ip >= M_{l+1}], plus moved weights.

    The pair whose loss is M_{l+1} gets the weights of the pairs that are raised to M_{l+1}.
    """

    def __init__(
        self, levels: ConstrainedPairs, z_BD: Tensor, lse_B: Tensor, ratio: Number, floor_H: Tensor
    ) -> None:
        self._levels = levels
        self._z_BD = z_BD
        self._lse_B = lse_B
        self._ratio = ratio
        # Both ends of a pair compute its loss and round differently; both must keep a pair at the floor.
        bound = ratio * z_BD.square().sum(1).max()
        slack = 4 * torch.finfo(levels.dtype).eps
        floor_H = floor_H - slack * (bound + floor_H.abs())
        self._floors = torch.where(floor_H > 0, floor_H, -torch.inf).unbind()
        self._pair_weight_HB = safe_divide(levels.share_H[:, None], levels.count.to(levels.dtype))
        self.row_sums = lse_B.new_zeros(levels.own)
        # The last row is for the rows of other processes.
        self._product = z_BD.new_zeros(levels.own + 1, z_BD.shape[1])

    def fill(self) -> Tensor:
        """Computes row sums and product; returns the weight of raised pairs by anchor and level (N, H)."""
        own_rows, z_BD = len(self.row_sums), self._z_BD
        count_HN = torch.zeros_like(self._pair_weight_HB[:, :own_rows])
        for tile in self._levels.tiles():
            logit_IJ = tile.logits(z_BD, self._ratio)
            weight_IJ = torch.zeros_like(logit_IJ)
            for anchors, axis in ((tile.rows, 1), (tile.cols, 0)):
                loss_IJ = self._lse_B[anchors].unsqueeze(axis) - logit_IJ
                for level, weight_B in enumerate(self._pair_weight_HB):
                    kept_IJ = self._is_kept(loss_IJ, tile, level).to(loss_IJ.dtype)
                    weight_IJ.addcmul_(kept_IJ, weight_B[anchors].unsqueeze(axis))
                    if axis or tile.mirrored:
                        count_HN[level][anchors] += kept_IJ.sum(axis)
            self._product.index_add_(0, tile.rows, weight_IJ @ z_BD[tile.cols])
            if tile.mirrored:
                self._product.index_add_(0, tile.cols, weight_IJ.T @ z_BD[tile.rows])
        weight_HN = self._pair_weight_HB[:, :own_rows]
        self.row_sums += (weight_HN * count_HN).sum(0)
        return (weight_HN * (self._levels.count[:, :own_rows] - count_HN)).T.contiguous()

    def add_pairs(self, anchor_H: Tensor, partner_H: Tensor, mass_H: Tensor) -> None:
        """Adds weights `mass_H` to the pairs of `anchor_H` with `partner_H`, one pair for each level."""
        rows = len(self.row_sums)
        for row_H, other_H in ((anchor_H, partner_H), (partner_H, anchor_H)):
            self._product.index_add_(0, row_H.clamp(max=rows), mass_H[:, None] * self._z_BD[other_H])
        self.row_sums = F.pad(self.row_sums, (0, 1)).index_add_(0, anchor_H.clamp(max=rows), mass_H)[:rows]

    def attract(self, _z_BD: Tensor) -> Tensor:
        """Returns the product that `fill` and `add_pairs` computed with these embeddings."""
        return self._product[: len(self.row_sums)]

    def _is_kept(self, loss_IJ: Tensor, tile: _Tile, level: int) -> Tensor:
        """Whether pairs are positive at the level and not raised (I, J)."""
        positive_IJ = tile.depth > level
        finest = level == len(self._floors) - 1
        return positive_IJ if finest else positive_IJ & (loss_IJ >= self._floors[level])
