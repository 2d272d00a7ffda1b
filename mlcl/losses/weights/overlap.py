"""Weights that depend on how two label sets overlap: one factor K for each pair of distinct sets.

Shapes: N own rows, B rows, U distinct sets (the first V of them in own rows), D embedding; I, J of a tile.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from mlcl.losses import tiling
from mlcl.losses.relations import LabelCounts
from mlcl.losses.sets import DistinctSets, LabelSets
from mlcl.losses.weighting import Weighting, others, safe_divide
from mlcl.losses.weights.base import PairWeights, Ranks

Normalizer = Literal["positives", "factors", "candidates"]
OfCounts = Callable[[LabelCounts], Tensor]
Factor = Callable[[LabelCounts], Tensor | tuple[Tensor, Tensor]]


def sharing(counts: LabelCounts) -> tuple[Tensor, Tensor]:
    """Positive are the sets that share a label; K = 1."""
    positive = counts.shared > 0
    return positive, positive.to(counts.shared.dtype)


@dataclass(frozen=True)
class OverlapRule:
    """W_ip = K_ip 1[p in P(i)] / n_i.

    `factor` computes K from the counts of pairs of label sets. Positive are the pairs that share a label;
    a `factor` with other positives returns them too: (positive as bool, K), K being 0 where they are not.
    n_i is the number of positives, the sum of their K, or the number of candidates. `constant`, summed over
    the positives and divided by n_i, is subtracted from the anchor's term. `symmetric` says that
    K_ip = K_pi, which saves half of the work.
    """

    factor: Factor
    normalizer: Normalizer = "positives"
    constant: OfCounts | None = None
    symmetric: bool = False

    def dense(self, sets: LabelSets, anchors: slice, dtype: torch.dtype) -> Weighting:
        """The weights by their definition, N x B."""
        counts = sets.counts(anchors, slice(0, len(sets)), dtype)
        positive_NB, factor_NB = self.positive_and_factor(counts)
        positive_NB = positive_NB & others(anchors, len(sets), sets.sizes.device)
        factor_NB = factor_NB * positive_NB
        positives_N = positive_NB.sum(1)
        divisor_N = self.divisor(positives_N, factor_NB.sum(1), len(sets)).to(dtype)
        constant_N = None
        if self.constant is not None:
            part_NB = torch.where(positive_NB, self.constant(counts), 0)
            constant_N = -safe_divide(part_NB.sum(1), divisor_N)
        return Weighting(safe_divide(factor_NB.to(dtype), divisor_N[:, None]), positives_N, constant_N)

    def closed(self, sets: LabelSets, own: int, ranks: Ranks, dtype: torch.dtype) -> OverlapWeights:
        """The weights in closed form."""
        return OverlapWeights(self, sets, own, ranks, dtype)

    def positive_and_factor(self, counts: LabelCounts) -> tuple[Tensor, Tensor]:
        """Whether pairs are positive, and their K."""
        found = self.factor(counts)
        if isinstance(found, tuple):
            return found
        positive = counts.shared > 0
        return positive, torch.where(positive, found, 0)

    def divisor(self, positives: Tensor, factors: Tensor, rows: int) -> Tensor:
        """n_i, given the numbers of positives and the sums of K."""
        if self.normalizer == "candidates":
            return torch.full_like(factors, rows - 1)
        return factors if self.normalizer == "factors" else positives

    def parts(self, counts: LabelCounts, dtype: torch.dtype) -> list[Tensor]:
        """Whether pairs are positive, their K and, where there is one, their constant, as numbers."""
        positive_IJ, factor_IJ = self.positive_and_factor(counts)
        parts = [positive_IJ.to(dtype), factor_IJ.to(dtype)]
        if self.constant is not None:
            parts.append(torch.where(positive_IJ, self.constant(counts), 0).to(dtype))
        return parts


class SetPairs:
    """K_uv and K_vu of the pairs of distinct sets: the `own` first with all. Few are kept, many made anew."""

    def __init__(self, rule: OverlapRule, distinct: DistinctSets) -> None:
        self._rule, self._own, self._rows_U = rule, distinct.own, distinct.rows
        self._sets = distinct.repeated
        self._kept: Tensor | None = None

    def sums(self) -> Tensor:
        """For each own set, over all rows but one of that set: positives, factors, constants (3, V)."""
        rows_U = self._rows_U
        totals_3V = rows_U.new_zeros(3, self._own)
        kept = self._space()
        for rows, cols, mirrored in tiling.tiles(rows_U.device, self._own, len(rows_U)):
            there, back = self._parts(rows, cols)
            for total_V, part_IJ in zip(totals_3V, there, strict=False):
                if rows == cols:
                    total_V[rows] += part_IJ.diagonal() * (rows_U[rows] - 1)
                    part_IJ = part_IJ.clone().fill_diagonal_(0)
                total_V[rows] += part_IJ @ rows_U[cols]
            for total_V, part_IJ in zip(totals_3V, back if mirrored else [], strict=False):
                total_V[cols] += part_IJ.T @ rows_U[rows]
            if kept is not None:
                kept[rows, cols] = there[1]
                if mirrored:
                    kept[cols, rows] = back[1].T
        self._kept = kept
        return totals_3V

    def of_sets(self, rows: slice, cols: slice) -> tuple[Tensor, Tensor]:
        """K_uv and K_vu of a tile of sets (I, J), not to be changed."""
        if self._kept is None:
            there, back = self._parts(rows, cols)
            return there[1], back[1]
        there_IJ = self._kept[rows, cols]
        return there_IJ, there_IJ if self._rule.symmetric else self._kept[cols, rows].T

    def of_rows(self, place_I: Tensor, place_J: Tensor) -> tuple[Tensor, Tensor] | None:
        """K_ip and K_pi of rows with these sets (I, J), where they have been kept."""
        if self._kept is None:
            return None
        there_IJ = self._kept.index_select(0, place_I).index_select(1, place_J)
        if self._rule.symmetric:
            return there_IJ, there_IJ
        return there_IJ, self._kept.index_select(0, place_J).index_select(1, place_I).T

    def _space(self) -> Tensor | None:
        """Room for K_uv (V, U), if it is little and K_vu can be read off it too."""
        shape = self._own, len(self._rows_U)
        if shape[0] * shape[1] > tiling.KEPT or not (self._rule.symmetric or shape[0] == shape[1]):
            return None
        return self._rows_U.new_empty(shape)

    def _parts(self, rows: slice, cols: slice) -> tuple[list[Tensor], list[Tensor]]:
        dtype = self._rows_U.dtype
        counts = self._sets.counts(rows, cols, dtype)
        there = self._rule.parts(counts, dtype)
        if self._rule.symmetric:
            return there, there
        if rows == cols:
            return there, [part_IJ.T for part_IJ in there]
        return there, self._rule.parts(counts.reversed(), dtype)


class OverlapWeights(PairWeights):
    """W over distinct sets, of which two views leave half as many as rows: V U D for the product.

    What sets share is gone through twice, tile by tile: for the n_i, and for the product.
    """

    def __init__(
        self, rule: OverlapRule, sets: LabelSets, own: int, ranks: Ranks, dtype: torch.dtype
    ) -> None:
        self._rule = rule
        self._rows = sets
        self._distinct = distinct = DistinctSets(sets, own, dtype, ranks.device)
        self._pairs = SetPairs(rule, distinct)
        place_N = distinct.own_place
        positives_V, factors_V, constant_V = self._pairs.sums().unbind()
        divisor_V = rule.divisor(positives_V, factors_V, len(sets))
        self._positives_N: Tensor = positives_V[place_N].round().long()
        self._inverse_B = ranks.share(safe_divide(torch.ones_like(divisor_V), divisor_V)[place_N])
        self._inverse_U = torch.zeros_like(distinct.rows).index_copy_(0, distinct.place, self._inverse_B)
        self.row_sums = factors_V[place_N] * self._inverse_B[:own]
        if rule.constant is not None:
            self.constant = -(constant_V[place_N] * self._inverse_B[:own])

    def positives(self) -> Tensor:
        """|P(i)| (N,)."""
        return self._positives_N

    def attract(self, z_BD: Tensor) -> Tensor:
        """The own rows of (W + W^T) Z, (N, D)."""
        inverse_U = self._inverse_U
        return self._distinct.attract(
            lambda rows, cols: self._both(*self._pairs.of_sets(rows, cols), inverse_U[rows], inverse_U[cols]),
            z_BD,
        )

    def both(self, rows: slice, cols: slice) -> Tensor:
        """W_ij + W_ji of a tile of rows (I, J), 0 where i = j."""
        factors = self._pairs.of_rows(self._distinct.place[rows], self._distinct.place[cols])
        if factors is None:
            self._rows = self._rows.to(self._inverse_B.device)
            counts = self._rows.counts(rows, cols, self._inverse_B.dtype)
            there_IJ = back_IJ = self._rule.positive_and_factor(counts)[1]
            if not self._rule.symmetric:
                back_IJ = self._rule.positive_and_factor(counts.reversed())[1]
            factors = there_IJ, back_IJ
        both_IJ = self._both(*factors, self._inverse_B[rows], self._inverse_B[cols])
        return both_IJ.fill_diagonal_(0) if rows == cols else both_IJ

    def _both(self, there_IJ: Tensor, back_IJ: Tensor, inverse_I: Tensor, inverse_J: Tensor) -> Tensor:
        """W_uv + W_vu of a tile (I, J), from K_uv and K_vu."""
        if self._rule.symmetric:
            return there_IJ * (inverse_I[:, None] + inverse_J)
        return (there_IJ * inverse_I[:, None]).addcmul_(back_IJ, inverse_J)


def count_overlapping(distinct: DistinctSets) -> Tensor:
    """For each own row the number of other rows that share a label with it (N,)."""
    positives_V: Tensor = SetPairs(OverlapRule(sharing, symmetric=True), distinct).sums()[0]
    return positives_V[distinct.own_place].round().long()
