"""MSC's weights: shared labels, each the less the more rows have it, and one prototype a label.

Shapes: N own rows, B rows, U distinct label sets (the first V of them in own rows), L labels, M stored labels
of the distinct sets, D embedding; I, J of a tile.
"""

from __future__ import annotations

import torch
from torch import Tensor

from mlcl.labels import LabelRows
from mlcl.losses import tiling
from mlcl.losses.sets import LabelSets, bag, by_label, cross, entries
from mlcl.losses.tiling import tiles
from mlcl.losses.weighting import safe_divide
from mlcl.losses.weights.base import PairWeights
from mlcl.losses.weights.overlap import count_overlapping

LABEL_SUMS = 1 << 21
"""Entries of the sums by label (L, I) of a tile of sets."""


class MscWeights(PairWeights):
    """W_uv = alpha / (|u| |u or v|) sum_{l in u & v} 1 / N(u, l), and 1 / (|u| N(u, l)) for u's prototypes.

    N(u, l) = [there are prototypes] + alpha sum_v 1 / |u or v| over the other rows v that have l.
    """

    def __init__(
        self,
        sets: LabelSets,
        own: int,
        dtype: torch.dtype,
        alpha: float,
        prototypes: bool,
        *,
        repulsion: float,
    ) -> None:
        self.repulsion = float(repulsion)
        self._all, self._own, self._dtype, self._alpha = sets, own, dtype, alpha
        self._sets, self._place_B = sets.distinct()
        assert self._sets.rows is not None
        self._labels = self._sets.rows
        self._own_sets = int(self._place_B[:own].max()) + 1 if own else 0
        self._rows_U = torch.bincount(self._place_B, minlength=len(self._sets)).to(dtype)
        self._set_M = self._labels.row_index()
        normaliser_M = self._sums() * alpha + int(prototypes)
        self._inverse_M = safe_divide(torch.ones_like(normaliser_M), normaliser_M)
        size_U = self._sets.sizes.to(dtype)
        self._prototype_M = self._inverse_M / size_U[self._set_M] if prototypes else None
        # With u's label come weights of 1 / |u| in all, unless nothing else has it.
        drawn_U = torch.zeros_like(size_U).index_add_(0, self._set_M, (normaliser_M > 0).to(dtype))
        self.row_sums = safe_divide(drawn_U, size_U)[self._place_B[:own]]

    def positives(self) -> Tensor:
        """|P(i)| (N,): the rows that share a label, prototypes aside."""
        return count_overlapping(self._all, self._own, self._dtype)

    def has_positive(self) -> Tensor:
        """Whether anything draws the anchor, a row or a prototype."""
        return self.row_sums > 0

    def attract(self, z_BD: Tensor) -> Tensor:
        """The own rows of (W + W^T) Z, prototypes included, (N, D)."""
        rows = len(self._place_B)
        group_UD = z_BD.new_zeros(len(self._sets), z_BD.shape[1]).index_add_(0, self._place_B, z_BD[:rows])
        sum_VD = z_BD.new_zeros(self._own_sets, z_BD.shape[1])
        itself_V = z_BD.new_zeros(self._own_sets)
        for part, cols, mirrored in tiles(z_BD.device, self._own_sets, len(self._sets)):
            both_IJ = self._both(part, cols)
            sum_VD[part].addmm_(both_IJ, group_UD[cols])
            if mirrored:
                sum_VD[cols].addmm_(both_IJ.T, group_UD[part])
            if part == cols:
                itself_V[part] = both_IJ.diagonal()
        place_N = self._place_B[: self._own]
        drawn_ND = sum_VD[place_N] - itself_V[place_N, None] * z_BD[: self._own]
        if self._prototype_M is None:
            return drawn_ND
        label_V, offsets = entries(self._labels, slice(0, self._own_sets))
        return drawn_ND + bag(label_V, offsets, z_BD[rows:], self._prototype_M[: len(label_V)])[place_N]

    def attract_prototypes(self, z_BD: Tensor) -> Tensor:
        """W^T Z of the prototypes' columns (L, D), from own rows."""
        assert self._prototype_M is not None
        own_UD = z_BD.new_zeros(len(self._sets), z_BD.shape[1])
        own_UD.index_add_(0, self._place_B[: self._own], z_BD[: self._own])
        order_M, set_M, offsets = by_label(self._labels)
        return bag(set_M, offsets, own_UD, self._prototype_M[order_M])

    def _both(self, part: slice, cols: slice) -> Tensor:
        """W_uv + W_vu of a tile of sets (I, J)."""
        size_U = self._sets.sizes.to(self._dtype)
        shared_IJ = self._sets.shared(part, cols, self._dtype)
        union_IJ = size_U[part, None] + size_U[cols] - shared_IJ
        there_IJ = self._inverse_shared(part, cols) / size_U[part, None].clamp(min=1)
        back_IJ = self._inverse_shared(cols, part).T / size_U[cols].clamp(min=1)
        return (there_IJ + back_IJ) * (self._alpha / union_IJ.clamp(min=1))

    def _inverse_shared(self, part: slice, cols: slice) -> Tensor:
        """sum_{l in u & v} 1 / N(u, l), (I, J)."""
        first, last = self._labels.offsets[[part.start, part.stop]].tolist()
        return cross(self._labels, part, cols, self._dtype, self._inverse_M[first:last])

    def _sums(self) -> Tensor:
        """For each stored label (u, l): sum_v 1 / |u or v| over other rows v that have l (M,)."""
        total = len(self._sets)
        size_U = self._sets.sizes.to(self._dtype)
        size = tiling.edge(size_U.device)
        step = max(1, min(size, LABEL_SUMS // max(1, self._labels.width)))
        sum_M = torch.zeros(len(self._set_M), dtype=self._dtype, device=size_U.device)
        for top in range(0, total, step):
            part = slice(top, min(top + step, total))
            first, last = self._labels.offsets[[part.start, part.stop]].tolist()
            set_m = self._set_M[first:last]
            label_m = self._labels.columns[first:last]
            for left in range(0, total, size):
                cols = slice(left, min(left + size, total))
                shared_JI = self._sets.shared(cols, part, self._dtype)
                union_JI = size_U[cols, None] + size_U[part] - shared_JI
                share_JI = self._rows_U[cols, None] / union_JI.clamp(min=1)
                sum_M[first:last] += self._by_label(share_JI, cols)[label_m, set_m - top]
            sum_M[first:last] -= 1 / size_U[set_m]
        return sum_M

    def _by_label(self, value_JI: Tensor, cols: slice) -> Tensor:
        """For each label the sum over the sets of the tile that have it, (L, I)."""
        columns, offsets = entries(self._labels, cols)
        _, set_J, label_offsets = by_label(LabelRows(offsets, columns, self._labels.width))
        return bag(set_J, label_offsets, value_JI)
