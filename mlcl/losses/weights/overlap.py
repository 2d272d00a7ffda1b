"""Weights that depend on how two label sets overlap: one factor K for each pair of distinct sets.

Shapes: N own rows, B rows, U distinct sets (the first V of them in own rows), D embedding; I, J of a tile.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from mlcl.losses.relations import LabelCounts
from mlcl.losses.sets import LabelSets
from mlcl.losses.tiling import tiles
from mlcl.losses.weighting import Weighting, others, safe_divide
from mlcl.losses.weights.base import PairWeights, Ranks

KEPT = 1 << 22
"""Pairs of sets up to which what they share is kept from one pass to the next."""
Normalizer = Literal["positives", "factors", "candidates"]
OfCounts = Callable[[LabelCounts], Tensor]


def overlapping(counts: LabelCounts) -> Tensor:
    """Whether S and T share a label."""
    return counts.shared > 0


@dataclass(frozen=True)
class OverlapRule:
    """W_ip = K_ip 1[p in P(i)] / n_i.

    `factor` gives K, None for 1, and `positive` the P(i), both from what two sets share; by default these are
    all that share a label, and then K must be 0 where none is shared. n_i is the number of positives, the sum
    of their K, or the number of candidates. `constant`, summed over the positives and divided by n_i, is
    subtracted from the anchor's term. `symmetric` says that K_ip = K_pi.
    """

    factor: OfCounts | None = None
    positive: OfCounts = overlapping
    normalizer: Normalizer = "positives"
    constant: OfCounts | None = None
    symmetric: bool = False

    def factors(self, counts: LabelCounts) -> Tensor:
        """K, 0 where a pair is not positive."""
        if self.factor is None:
            return self.positive(counts).to(counts.shared.dtype)
        factor = self.factor(counts)
        return factor if self.positive is overlapping else torch.where(self.positive(counts), factor, 0)

    def constants(self, counts: LabelCounts) -> Tensor:
        """The constant's part of each pair, 0 where a pair is not positive."""
        assert self.constant is not None
        return torch.where(self.positive(counts), self.constant(counts), 0)

    def dense(self, sets: LabelSets, anchors: slice, dtype: torch.dtype) -> Weighting:
        """The weights by their definition, N x B."""
        everyone = slice(0, len(sets))
        counts = _counts(sets.shared(anchors, everyone, dtype), sets.sizes, anchors, everyone)
        other_NB = others(anchors, len(sets), sets.sizes.device)
        positives_N = (self.positive(counts) & other_NB).sum(1)
        factor_NB = self.factors(counts) * other_NB
        divisor_N = self._divisor(positives_N, factor_NB.sum(1), len(sets)).to(dtype)
        constant_N = None
        if self.constant is not None:
            constant_N = -safe_divide((self.constants(counts) * other_NB).sum(1), divisor_N)
        return Weighting(safe_divide(factor_NB, divisor_N[:, None]).to(dtype), positives_N, constant_N)

    def _divisor(self, positives: Tensor, factors: Tensor, rows: int) -> Tensor:
        if self.normalizer == "candidates":
            return torch.full_like(factors, rows - 1)
        return factors if self.normalizer == "factors" else positives

    def closed(self, sets: LabelSets, own: int, ranks: Ranks, dtype: torch.dtype) -> OverlapWeights:
        """The weights in closed form."""
        return OverlapWeights(self, sets, own, ranks, dtype)

    def sums(self, pairs: SetPairs, rows_U: Tensor) -> tuple[Tensor, ...]:
        """For each own set, over all rows but one of that set: positives, factors, constants. Each (V,)."""
        dtype = pairs.dtype
        parts: list[OfCounts] = [lambda counts: self.positive(counts).to(dtype)]
        if self.factor is not None:
            parts.append(self.factors)
        if self.constant is not None:
            parts.append(self.constants)
        totals = [torch.zeros(pairs.own, dtype=dtype, device=rows_U.device) for _ in parts]
        for rows, cols, mirrored, counts in pairs.tiles():
            for total, part in zip(totals, parts, strict=True):
                value_IJ = part(counts).to(dtype)
                total[rows] += value_IJ @ rows_U[cols]
                if rows == cols:
                    total[rows] -= value_IJ.diagonal()
                if mirrored:
                    back_IJ = value_IJ if self.symmetric else part(counts.reversed()).to(dtype)
                    total[cols] += back_IJ.T @ rows_U[rows]
        return tuple(totals) if self.factor is not None else (totals[0], *totals)


class SetPairs:
    """What pairs of distinct sets share, tile by tile, the first `own` with all; kept where it is little."""

    def __init__(self, sets: LabelSets, own: int, dtype: torch.dtype) -> None:
        self.sets, self.own, self.dtype = sets.repeated(), own, dtype
        self._sizes = sets.sizes
        self._kept: dict[tuple[int, int], Tensor] | None = {} if own * len(sets) <= KEPT else None

    def tiles(self) -> Iterator[tuple[slice, slice, bool, LabelCounts]]:
        """Rows, columns and `mirrored` as in `tiling.tiles`, and the counts."""
        for rows, cols, mirrored in tiles(self.own, len(self.sets)):
            key = rows.start, cols.start
            if self._kept is None or key not in self._kept:
                shared_IJ = self.sets.shared(rows, cols, self.dtype)
                if self._kept is not None:
                    self._kept[key] = shared_IJ
            else:
                shared_IJ = self._kept[key]
            yield rows, cols, mirrored, _counts(shared_IJ, self._sizes, rows, cols)


class OverlapWeights(PairWeights):
    """W over distinct sets, of which two views leave half as many as rows: V U D for the product.

    What sets share is gone through twice, tile by tile: for the n_i, and for the product.
    """

    def __init__(
        self, rule: OverlapRule, sets: LabelSets, own: int, ranks: Ranks, dtype: torch.dtype
    ) -> None:
        distinct, self._place_B = sets.distinct()
        self._rule = rule
        self._rows = sets
        self._own = own
        place_N = self._place_B[:own]
        self._pairs = SetPairs(distinct, int(place_N.max()) + 1 if own else 0, dtype)
        rows_U = torch.bincount(self._place_B, minlength=len(distinct)).to(dtype)
        positives_V, factors_V, *constant_V = rule.sums(self._pairs, rows_U)
        divisor_V = rule._divisor(positives_V, factors_V, len(sets))
        self._positives_N = positives_V[place_N].round().long()
        self._inverse_B = ranks.share(safe_divide(torch.ones_like(divisor_V), divisor_V)[place_N])
        self._inverse_U = torch.zeros_like(rows_U).index_copy_(0, self._place_B, self._inverse_B)
        self.row_sums = factors_V[place_N] * self._inverse_B[:own]
        self.constant = -(constant_V[0][place_N] * self._inverse_B[:own]) if constant_V else None

    def positives(self) -> Tensor:
        """|P(i)| (N,)."""
        return self._positives_N

    def attract(self, z_BD: Tensor) -> Tensor:
        """The own rows of (W + W^T) Z, (N, D)."""
        dim = z_BD.shape[1]
        group_UD = z_BD.new_zeros(len(self._pairs.sets), dim).index_add_(0, self._place_B, z_BD)
        sum_VD = z_BD.new_zeros(self._pairs.own, dim)
        itself_V = z_BD.new_zeros(self._pairs.own)
        for rows, cols, mirrored, counts in self._pairs.tiles():
            both_IJ = self._both(counts, self._inverse_U[rows], self._inverse_U[cols])
            sum_VD[rows].addmm_(both_IJ, group_UD[cols])
            if mirrored:
                sum_VD[cols].addmm_(both_IJ.T, group_UD[rows])
            if rows == cols:
                itself_V[rows] = both_IJ.diagonal()
        place_N = self._place_B[: self._own]
        return sum_VD[place_N].sub_(itself_V[place_N, None] * z_BD[: self._own])

    def both(self, rows: slice, cols: slice) -> Tensor:
        """W_ij + W_ji of a tile of rows (I, J), 0 where i = j."""
        shared_IJ = self._rows.shared(rows, cols, self._inverse_B.dtype)
        counts = _counts(shared_IJ, self._rows.sizes, rows, cols)
        both_IJ = self._both(counts, self._inverse_B[rows], self._inverse_B[cols])
        return both_IJ.fill_diagonal_(0) if rows == cols else both_IJ

    def _both(self, counts: LabelCounts, inverse_I: Tensor, inverse_J: Tensor) -> Tensor:
        """W_uv + W_vu of a tile of sets (I, J)."""
        there_IJ = self._rule.factors(counts).to(inverse_I.dtype)
        if self._rule.symmetric:
            return there_IJ * (inverse_I[:, None] + inverse_J)
        back_IJ = self._rule.factors(counts.reversed()).to(inverse_I.dtype)
        return (there_IJ * inverse_I[:, None]).addcmul_(back_IJ, inverse_J)


def count_overlapping(sets: LabelSets, own: int, dtype: torch.dtype) -> Tensor:
    """For each own row the number of other rows that share a label with it (N,)."""
    distinct, place_B = sets.distinct()
    pairs = SetPairs(distinct, int(place_B[:own].max()) + 1 if own else 0, dtype)
    rows_U = torch.bincount(place_B, minlength=len(distinct)).to(dtype)
    return OverlapRule().sums(pairs, rows_U)[0][place_B[:own]].round().long()


def _counts(shared_IJ: Tensor, sizes: Tensor, rows: slice, cols: slice) -> LabelCounts:
    sizes = sizes.to(shared_IJ.dtype)
    return LabelCounts(shared_IJ, sizes[rows, None], sizes[None, cols])
