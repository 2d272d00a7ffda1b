"""MSC's weights: shared labels, each the less the more rows have it, and one prototype a label.

Shapes: N own rows, B rows, U distinct label sets (the first V of them in own rows), L labels, M stored labels
of the distinct sets, D embedding; I, J of a tile.
"""

from __future__ import annotations

import torch
from torch import Tensor

from mlcl.labels import LabelRows
from mlcl.losses import tiling
from mlcl.losses.sets import DistinctSets, LabelSets, bag, by_label, cross
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
        device: torch.device | None,
        dtype: torch.dtype,
        alpha: float,
        prototypes: bool,
        *,
        repulsion: float,
    ) -> None:
        self.repulsion = float(repulsion)
        self._dtype, self._alpha = dtype, alpha
        self._distinct = DistinctSets(sets, own, dtype, device)
        self._sets = self._distinct.sets
        assert self._sets.rows is not None
        self._labels = self._sets.rows
        self._set_M = self._labels.row_index()
        normaliser_M = self._sums() * alpha + int(prototypes)
        self._inverse_M = safe_divide(torch.ones_like(normaliser_M), normaliser_M)
        size_U = self._sets.sizes.to(dtype)
        self._prototype_M = self._inverse_M / size_U[self._set_M] if prototypes else None
        # With u's label come weights of 1 / |u| in all, unless nothing else has it.
        drawn_U = torch.zeros_like(size_U).index_add_(0, self._set_M, (normaliser_M > 0).to(dtype))
        self.row_sums = safe_divide(drawn_U, size_U)[self._distinct.own_place]

    def positives(self) -> Tensor:
        """|P(i)| (N,): the rows that share a label, prototypes aside."""
        return count_overlapping(self._distinct)

    def has_positive(self) -> Tensor:
        """Whether anything draws the anchor, a row or a prototype."""
        return self.row_sums > 0

    def attract(self, z_BD: Tensor) -> Tensor:
        """The own rows of (W + W^T) Z, prototypes included, (N, D)."""
        rows = len(self._distinct.place)
        drawn_ND = self._distinct.attract(self._both, z_BD[:rows])
        if self._prototype_M is None:
            return drawn_ND
        label_V, offsets = self._labels.part(slice(0, self._distinct.own))
        drawn_VD = bag(label_V, offsets, z_BD[rows:], self._prototype_M[: len(label_V)])
        return drawn_ND + drawn_VD[self._distinct.own_place]

    def attract_prototypes(self, z_BD: Tensor) -> Tensor:
        """W^T Z of the prototypes' columns (L, D), from own rows."""
        assert self._prototype_M is not None
        place_N = self._distinct.own_place
        own_UD = z_BD.new_zeros(len(self._sets), z_BD.shape[1]).index_add_(0, place_N, z_BD[: len(place_N)])
        order_M, set_M, offsets = by_label(self._labels)
        return bag(set_M, offsets, own_UD, self._prototype_M[order_M])

    def _both(self, part: slice, cols: slice) -> Tensor:
        """W_uv + W_vu of a tile of sets (I, J)."""
        counts = self._sets.counts(part, cols, self._dtype)
        there_IJ = self._inverse_shared(part, cols) / counts.anchor_size.clamp(min=1)
        back_IJ = self._inverse_shared(cols, part).T / counts.candidate_size.clamp(min=1)
        return (there_IJ + back_IJ) * (self._alpha / counts.union.clamp(min=1))

    def _inverse_shared(self, part: slice, cols: slice) -> Tensor:
        """sum_{l in u & v} 1 / N(u, l), (I, J)."""
        first, last = self._labels.known_offsets[[part.start, part.stop]].tolist()
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
            first, last = self._labels.known_offsets[[part.start, part.stop]].tolist()
            set_m = self._set_M[first:last]
            label_m = self._labels.columns[first:last]
            for left in range(0, total, size):
                cols = slice(left, min(left + size, total))
                union_JI = self._sets.counts(cols, part, self._dtype).union
                share_JI = self._distinct.rows[cols, None] / union_JI.clamp(min=1)
                sum_M[first:last] += self._by_label(share_JI, cols)[label_m, set_m - top]
            sum_M[first:last] -= 1 / size_U[set_m]
        return sum_M

    def _by_label(self, value_JI: Tensor, cols: slice) -> Tensor:
        """For each label the sum over the sets of the tile that have it, (L, I)."""
        columns, offsets = self._labels.part(cols)
        _, set_J, label_offsets = by_label(LabelRows(offsets, columns, self._labels.width))
        return bag(set_J, label_offsets, value_JI)
