"""Weights that depend on the overlap of two label sets: one factor K for each pair of distinct sets.

Shapes: N own rows, B rows, U distinct sets (the first V of them in own rows), D embedding; I, J of a tile.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from mlcl.losses import tiling
from mlcl.losses.dense import Weighting, candidate_mask, safe_divide
from mlcl.losses.relations import LabelCounts
from mlcl.losses.sets import LabelSets
from mlcl.losses.weights.base import BatchRanks, DistinctSets, PairWeights

Normalizer = Literal["positives", "factors", "candidates"]
OfCounts = Callable[[LabelCounts], Tensor]
Factor = Callable[[LabelCounts], Tensor | tuple[Tensor, Tensor]]


def share_label(counts: LabelCounts) -> tuple[Tensor, Tensor]:
    """Returns the positives, pairs that share a label, as bool, and their K = 1: the factor of ANY."""
    positive = counts.shared > 0
    return positive, positive.to(counts.shared.dtype)


@dataclass(frozen=True)
class OverlapRule:
    """W_ip = K_ip 1[p in P(i)] / n_i.

    Attributes:
        factor: A function that computes K from the counts of pairs of label sets. Pairs that share a label
            are positive; for other positives, `factor` returns (positive as bool, K), with K = 0 for pairs
            that are not positive.
        normalizer: The divisor n_i: the number of `positives`, the sum of their K (`factors`), or the number
            of `candidates`.
        constant: A function of the counts whose values are summed over the positives, divided by n_i and
            subtracted from the anchor's term of the loss.
        symmetric: Whether K_ip = K_pi, which saves half of the work.

    Example:
        >>> rule = OverlapRule(lambda counts: counts.shared / counts.union, symmetric=True)
    """

    factor: Factor
    normalizer: Normalizer = "positives"
    constant: OfCounts | None = None
    symmetric: bool = False

    def dense(self, sets: LabelSets, anchors: slice, dtype: torch.dtype) -> Weighting:
        """Returns the weights as a matrix N x B, computed by their definition."""
        counts = sets.counts(anchors, slice(0, len(sets)), dtype)
        positive_NB, factor_NB = self.positive_and_factor(counts)
        positive_NB = positive_NB & candidate_mask(anchors, len(sets), sets.sizes.device)
        factor_NB = factor_NB * positive_NB
        positives_N = positive_NB.sum(1)
        divisor_N = self.divisor(positives_N, factor_NB.sum(1), len(sets)).to(dtype)
        constant_N = None
        if self.constant is not None:
            part_NB = torch.where(positive_NB, self.constant(counts), 0)
            constant_N = -safe_divide(part_NB.sum(1), divisor_N)
        return Weighting(safe_divide(factor_NB.to(dtype), divisor_N[:, None]), positives_N, constant_N)

    def closed(self, sets: LabelSets, ranks: BatchRanks) -> OverlapWeights:
        """Returns the weights in closed form, for the tiled engine."""
        return OverlapWeights(self, sets, ranks)

    def positive_and_factor(self, counts: LabelCounts) -> tuple[Tensor, Tensor]:
        """Returns whether pairs are positive, as bool, and their K."""
        result = self.factor(counts)
        if isinstance(result, tuple):
            return result
        positive = counts.shared > 0
        return positive, torch.where(positive, result, 0)

    def divisor(self, positives: Tensor, factors: Tensor, rows: int) -> Tensor:
        """Returns n_i, given the anchors' numbers of positives, their sums of K, and the number of rows."""
        if self.normalizer == "candidates":
            return torch.full_like(factors, rows - 1)
        if self.normalizer == "positives":
            return positives
        # A subnormal sum, which lacks digits and whose inverse may be infinite, counts as 0.
        return factors.masked_fill(factors < torch.finfo(factors.dtype).tiny, 0)

    def parts(self, counts: LabelCounts, dtype: torch.dtype) -> list[Tensor]:
        """Returns whether pairs are positive (1 or 0), their K and, if the rule has one, their constant."""
        positive_IJ, factor_IJ = self.positive_and_factor(counts)
        parts = [positive_IJ.to(dtype), factor_IJ.to(dtype)]
        if self.constant is not None:
            parts.append(torch.where(positive_IJ, self.constant(counts), 0).to(dtype))
        return parts


class SetPairs:
    """Computes K_uv and K_vu of own rows' distinct sets u with all sets v, and keeps them if they are few."""

    def __init__(self, rule: OverlapRule, distinct: DistinctSets) -> None:
        self._rule, self._n_own, self._rows_U = rule, distinct.own, distinct.rows
        self._sets = distinct.reduced
        self._kept_pairs: Tensor | None = None

    def sums(self) -> Tensor:
        """Returns the number of positives and the sums of K and of constants (3, V) of own sets' anchors.

        An anchor's sums are over all other rows: of the rows with its own set, one is left out.
        """
        rows_U = self._rows_U
        totals_3V = rows_U.new_zeros(3, self._n_own)
        buffer = self._allocate_pairs()
        for rows, cols, mirrored in tiling.tiles(rows_U.device, self._n_own, len(rows_U)):
            forward, backward = self._tile_parts(rows, cols)
            for total_V, part_IJ in zip(totals_3V, forward, strict=False):
                if rows == cols:
                    total_V[rows] += part_IJ.diagonal() * (rows_U[rows] - 1)
                    part_IJ = part_IJ.clone().fill_diagonal_(0)
                total_V[rows] += part_IJ @ rows_U[cols]
            for total_V, part_IJ in zip(totals_3V, backward if mirrored else [], strict=False):
                total_V[cols] += part_IJ.T @ rows_U[rows]
            if buffer is not None:
                buffer[rows, cols] = forward[1]
                if mirrored:
                    buffer[cols, rows] = backward[1].T
        self._kept_pairs = buffer
        return totals_3V

    def of_sets(self, rows: slice, cols: slice) -> tuple[Tensor, Tensor]:
        """Returns K_uv and K_vu of a tile of sets (I, J), as tensors that must not be overwritten."""
        if self._kept_pairs is None:
            forward, backward = self._tile_parts(rows, cols)
            return forward[1], backward[1]
        forward_IJ = self._kept_pairs[rows, cols]
        return forward_IJ, forward_IJ if self._rule.symmetric else self._kept_pairs[cols, rows].T

    def of_rows(self, index_I: Tensor, index_J: Tensor) -> tuple[Tensor, Tensor] | None:
        """Returns K_ip and K_pi of rows with these sets (I, J); None if the K have not been kept."""
        if self._kept_pairs is None:
            return None
        forward_IJ = self._kept_pairs.index_select(0, index_I).index_select(1, index_J)
        if self._rule.symmetric:
            return forward_IJ, forward_IJ
        return forward_IJ, self._kept_pairs.index_select(0, index_J).index_select(1, index_I).T

    def _allocate_pairs(self) -> Tensor | None:
        """Returns a buffer for the K_uv (V, U) of own sets u with all sets v.

        Returns None if there are more than `tiling.kept_pairs` pairs, or if the rule is asymmetric and other
        processes have further sets v, since the gradient needs K_vu, too.
        """
        shape = self._n_own, len(self._rows_U)
        fits = shape[0] * shape[1] <= tiling.kept_pairs(self._rows_U.device)
        if not fits or not (self._rule.symmetric or shape[0] == shape[1]):
            return None
        return self._rows_U.new_empty(shape)

    def _tile_parts(self, rows: slice, cols: slice) -> tuple[list[Tensor], list[Tensor]]:
        dtype = self._rows_U.dtype
        counts = self._sets.counts(rows, cols, dtype)
        forward = self._rule.parts(counts, dtype)
        if self._rule.symmetric:
            return forward, forward
        if rows == cols:
            return forward, [part_IJ.T for part_IJ in forward]
        return forward, self._rule.parts(counts.reversed(), dtype)


class OverlapWeights(PairWeights):
    """The weights of an `OverlapRule`, computed over distinct label sets; a product takes O(V U D).

    The views of a sample have the same set. Unless `SetPairs` keeps the K of pairs of sets, they are computed
    twice, tile by tile: for the n_i, and for the product.
    """

    def __init__(self, rule: OverlapRule, sets: LabelSets, ranks: BatchRanks) -> None:
        self._rule = rule
        self._rows = sets
        self._distinct_sets = distinct = DistinctSets(sets, ranks)
        self._pairs = SetPairs(rule, distinct)
        index_N = distinct.own_index
        positives_V, factors_V, constant_V = self._pairs.sums().unbind()
        divisor_V = rule.divisor(positives_V, factors_V, len(sets))
        self._has_positive_N: Tensor = positives_V[index_N].round() > 0
        self._inverse_B = ranks.share(safe_divide(torch.ones_like(divisor_V), divisor_V)[index_N])
        self._inverse_U = torch.zeros_like(distinct.rows).index_copy_(0, distinct.index, self._inverse_B)
        self.row_sums = factors_V[index_N] * self._inverse_B[: ranks.own]
        if rule.constant is not None:
            self.constant = -(constant_V[index_N] * self._inverse_B[: ranks.own])

    def has_positive(self) -> Tensor:
        """Whether each own anchor has a positive, which may have the weight 0, as bool (N,)."""
        return self._has_positive_N

    def attract(self, z_BD: Tensor) -> Tensor:
        """Returns the own rows of (W + W^T) Z, (N, D)."""
        inverse_U = self._inverse_U
        return self._distinct_sets.attract(
            lambda rows, cols: self._symmetric_weights(
                *self._pairs.of_sets(rows, cols), inverse_U[rows], inverse_U[cols]
            ),
            z_BD,
        )

    def symmetric_weights(self, rows: slice, cols: slice) -> Tensor:
        """Returns W_ij + W_ji of a tile of rows (I, J), 0 where i = j."""
        both_IJ = self._symmetric_weights(
            *self._factors(rows, cols), self._inverse_B[rows], self._inverse_B[cols]
        )
        return both_IJ.fill_diagonal_(0) if rows == cols else both_IJ

    def directed_weights(self, rows: slice, cols: slice) -> tuple[Tensor, Tensor]:
        """Returns W_ij and W_ji of a tile of rows (I, J), 0 where i = j."""
        forward_IJ, backward_IJ = self._factors(rows, cols)
        forward_IJ = forward_IJ * self._inverse_B[rows, None]
        backward_IJ = backward_IJ * self._inverse_B[cols]
        if rows == cols:
            forward_IJ.fill_diagonal_(0)
            backward_IJ.fill_diagonal_(0)
        return forward_IJ, backward_IJ

    def has_overlap(self, rows: slice, cols: slice) -> Tensor:
        """Whether K_ij is above 0 for a tile of rows (I, J)."""
        return self._factors(rows, cols)[0] > 0

    def _factors(self, rows: slice, cols: slice) -> tuple[Tensor, Tensor]:
        """Returns K_ij and K_ji of a tile of rows (I, J)."""
        factors = self._pairs.of_rows(self._distinct_sets.index[rows], self._distinct_sets.index[cols])
        if factors is not None:
            return factors
        self._rows = self._rows.to(self._inverse_B.device)
        counts = self._rows.counts(rows, cols, self._inverse_B.dtype)
        forward_IJ = self._rule.positive_and_factor(counts)[1]
        if self._rule.symmetric:
            return forward_IJ, forward_IJ
        return forward_IJ, self._rule.positive_and_factor(counts.reversed())[1]

    def _symmetric_weights(
        self, forward_IJ: Tensor, backward_IJ: Tensor, inverse_I: Tensor, inverse_J: Tensor
    ) -> Tensor:
        """Returns W_uv + W_vu of a tile (I, J), given K_uv, K_vu and the 1 / n of rows and columns."""
        if self._rule.symmetric:
            return forward_IJ * (inverse_I[:, None] + inverse_J)
        return (forward_IJ * inverse_I[:, None]).addcmul_(backward_IJ, inverse_J)
