"""Weights that divide an anchor's weight among its labels, and a label's share among the rows that have it.

Shapes: N anchors or own rows, B rows, U distinct label sets (the first V of them in own rows), L labels, M
stored labels of the distinct sets, D embedding; I, J of a tile.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from mlcl.labels import LabelRows
from mlcl.losses import tiling
from mlcl.losses.dense import Weighting, candidate_mask, safe_divide
from mlcl.losses.relations import LabelCounts
from mlcl.losses.sets import LabelSets, bag, cross, sort_by_label
from mlcl.losses.weights.base import BatchRanks, DistinctSets, PairWeights

LABEL_SUMS = 1 << 21
"""The largest number of entries of the matrix (L, I) of sums by label, for a tile of I sets."""
Nearness = Callable[[LabelCounts], Tensor]
"""A function that returns f_ip of pairs of label sets; that of pairs without a shared label is not used."""


@dataclass(frozen=True)
class LabelShareRule:
    """W_ip = f_ip / |y_i| sum_{l in y_i & y_p} 1 / N_il; 1 / (|y_i| N_il) for prototype l.

    N_il = [prototypes] + sum_{p != i, l in y_p} f_ip, where [prototypes] is 1 with prototypes, else 0. `near`
    computes f, and `repulsion` multiplies the exponentials of rows, not of prototypes.
    """

    near: Nearness
    prototypes: bool
    repulsion: float = 1.0

    def dense(self, sets: LabelSets, anchors: slice, dtype: torch.dtype) -> Weighting:
        """Returns the weights as a matrix N x B, and those of prototypes (N, L), by their definition."""
        assert sets.rows is not None
        y_BL = sets.rows.dense(dtype)
        y_NL, size_N1 = y_BL[anchors], y_BL[anchors].sum(1, keepdim=True)
        counts = LabelCounts(y_NL @ y_BL.T, size_N1, y_BL.sum(1)[None])
        nearness_NB = self.near(counts) * candidate_mask(anchors, len(sets), y_BL.device)
        inverse_NL = safe_divide(y_NL, (nearness_NB @ y_BL + int(self.prototypes)) * size_N1)
        w_NB = nearness_NB * (inverse_NL @ y_BL.T)
        prototype_NL = inverse_NL if self.prototypes else None
        return Weighting(w_NB, (w_NB > 0).sum(1), prototypes=prototype_NL, repulsion=self.repulsion)

    def closed(self, sets: LabelSets, ranks: BatchRanks) -> PairWeights:
        """Returns the weights in closed form, over distinct label sets, for the tiled engine."""
        return LabelShares(self, sets, ranks)


class LabelShares(PairWeights):
    """The weights of a `LabelShareRule`, for pairs u, v of distinct label sets; without `merge` of rows.

    W_uv = f_uv / |u| sum_{l in u & v} 1 / N(u, l), and 1 / (|u| N(u, l)) for u's prototypes.
    """

    def __init__(
        self, rule: LabelShareRule, sets: LabelSets, ranks: BatchRanks, *, merge: bool = True
    ) -> None:
        self.repulsion = rule.repulsion
        self._nearness, self._dtype = rule.near, ranks.dtype
        self._distinct_sets = DistinctSets(sets, ranks, merge=merge)
        self._sets = self._distinct_sets.sets
        assert self._sets.rows is not None
        self._labels = self._sets.rows
        self._set_M = self._labels.row_index()
        normaliser_M = self._sum_nearness() + int(rule.prototypes)
        self._inverse_M = safe_divide(torch.ones_like(normaliser_M), normaliser_M)
        size_U = self._sets.sizes.to(self._dtype)
        self._prototype_M = self._inverse_M / size_U[self._set_M] if rule.prototypes else None
        self._inverse_M.masked_fill_(self._set_M >= self._distinct_sets.anchors, 0)
        # The weights of one of u's labels add up to 1 / |u|, unless no other row or prototype has it.
        mass_U = torch.zeros_like(size_U).index_add_(0, self._set_M, (normaliser_M > 0).to(self._dtype))
        self.row_sums = safe_divide(mass_U, size_U)[self._distinct_sets.own_index]

    def attract(self, z_BD: Tensor) -> Tensor:
        """Returns the own rows of (W + W^T) Z, prototypes included, (N, D)."""
        rows = len(self._distinct_sets.index)
        product_ND = self._distinct_sets.attract(
            lambda i, j: torch.add(*self.directed_weights(i, j)), z_BD[:rows]
        )
        if self._prototype_M is None:
            return product_ND
        label_V, offsets = self._labels.part(slice(0, self._distinct_sets.own))
        product_VD = bag(label_V, offsets, z_BD[rows:], self._prototype_M[: len(label_V)])
        return product_ND + product_VD[self._distinct_sets.own_index]

    def attract_prototypes(self, z_BD: Tensor) -> Tensor:
        """Returns W^T Z for the prototypes' columns of W (L, D), summed over own rows."""
        assert self._prototype_M is not None
        index_N = self._distinct_sets.own_index
        sum_UD = z_BD.new_zeros(len(self._sets), z_BD.shape[1]).index_add_(0, index_N, z_BD[: len(index_N)])
        order_M, set_M, offsets = sort_by_label(self._labels)
        return bag(set_M, offsets, sum_UD, self._prototype_M[order_M])

    def directed_weights(self, rows: slice, cols: slice) -> tuple[Tensor, Tensor]:
        """Returns W_uv and W_vu of a tile of sets (I, J)."""
        counts = self._sets.counts(rows, cols, self._dtype)
        forward_IJ = self._inverse_shared(rows, cols) / counts.anchor_size.clamp(min=1)
        backward_IJ = self._inverse_shared(cols, rows).T / counts.candidate_size.clamp(min=1)
        return forward_IJ * self._nearness(counts), backward_IJ * self._nearness(counts.reversed())

    def of_prototypes(self) -> tuple[LabelRows, Tensor] | None:
        """Returns the labels of the sets and their prototypes' weights (M,); None without prototypes."""
        return None if self._prototype_M is None else (self._labels, self._prototype_M)

    def _inverse_shared(self, rows: slice, cols: slice) -> Tensor:
        """Returns sum_{l in u & v} 1 / N(u, l), (I, J)."""
        first, last = self._labels.known_offsets[[rows.start, rows.stop]].tolist()
        return cross(self._labels, rows, cols, self._dtype, self._inverse_M[first:last])

    def _sum_nearness(self) -> Tensor:
        """Returns sum_v f_uv over the other rows v that have l, for each stored (u, l), (M,)."""
        total, rows_U = len(self._sets), self._distinct_sets.rows
        size = tiling.tile_size(rows_U.device)
        step = max(1, min(size, LABEL_SUMS // max(1, self._labels.width)))
        sum_M = torch.zeros(len(self._set_M), dtype=self._dtype, device=rows_U.device)
        for top in range(0, total, step):
            part = slice(top, min(top + step, total))
            first, last = self._labels.known_offsets[[part.start, part.stop]].tolist()
            set_m = self._set_M[first:last]
            label_m = self._labels.columns[first:last]
            for left in range(0, total, size):
                cols = slice(left, min(left + size, total))
                nearness_JI = self._nearness(self._sets.counts(cols, part, self._dtype).reversed())
                share_JI = rows_U[cols, None] * nearness_JI
                if overlap := range(max(top, left), min(part.stop, cols.stop)):
                    # If the row itself were subtracted only later, rounding would hide the sum of small f.
                    u = torch.arange(overlap.start, overlap.stop, device=rows_U.device)
                    share_JI[u - left, u - top] -= nearness_JI[u - left, u - top]
                sum_M[first:last] += self._sum_by_label(share_JI, cols)[label_m, set_m - top]
        return sum_M

    def _sum_by_label(self, value_JI: Tensor, cols: slice) -> Tensor:
        """Returns, for each label, the sum of values over the tile's sets J that have it, (L, I)."""
        columns, offsets = self._labels.part(cols)
        _, set_J, label_offsets = sort_by_label(LabelRows(offsets, columns, self._labels.width))
        return bag(set_J, label_offsets, value_JI)
