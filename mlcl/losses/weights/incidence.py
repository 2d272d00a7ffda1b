"""Weights that are sums over the groups that two rows share: classes, label sets, labels, or path prefixes.

Shapes: N own rows, B rows, L groups, M stored entries, D embedding.
"""

from __future__ import annotations

import torch
from torch import Tensor

from mlcl.labels import LabelRows
from mlcl.losses.sets import bag, group_bag, sort_by_label
from mlcl.losses.weights.base import BatchRanks, PairWeights


class IncidenceWeights(PairWeights):
    """W_ip = sum_l a_il y_pl for p != i, where Y (`rows`) says which row is in which group.

    `value_M` are the a_il of Y's stored entries. `symmetric` says that a_il is equal for all rows in group l,
    which makes W symmetric. W Z = A (Y^T Z) - diag(A 1) Z and W^T Z = Y (A^T Z) - diag(A 1) Z take O(M D).
    """

    def __init__(
        self,
        rows: LabelRows,
        value_M: Tensor,
        row_sums_N: Tensor,
        own: int,
        *,
        symmetric: bool,
    ) -> None:
        self.row_sums = row_sums_N
        self._is_symmetric = symmetric
        # Everything that depends on labels alone is computed here, so that `attract` waits for no device.
        self._width = rows.width
        self._columns, self._offsets = rows.part(slice(0, own))
        order_M, self._row_M, self._group_offsets = sort_by_label(rows)
        self._own_value_M, self._group_value_M = value_M[: len(self._columns)], value_M[order_M]

    def attract(self, z_BD: Tensor) -> Tensor:
        """Returns the own rows of (W + W^T) Z, (N, D)."""
        value_M, by_group_M = self._own_value_M.to(z_BD.dtype), self._group_value_M.to(z_BD.dtype)
        itself_N1 = self._sum_over_groups(z_BD.new_ones(self._width, 1), value_M)
        z_ND = z_BD[: len(self._offsets) - 1]
        forward_ND = self._sum_over_groups(self._sum_over_rows(z_BD), value_M) - itself_N1 * z_ND
        if self._is_symmetric:
            return forward_ND.mul_(2)
        backward_ND = self._sum_over_groups(self._sum_over_rows(z_BD, by_group_M))
        return forward_ND.add_(backward_ND).sub_(itself_N1 * z_ND)

    def _sum_over_groups(self, table_LD: Tensor, weight_M: Tensor | None = None) -> Tensor:
        """Returns, for each own row, the (weighted) sum of the table's rows of its groups (N, D)."""
        return bag(self._columns, self._offsets, table_LD, weight_M)

    def _sum_over_rows(self, z_BD: Tensor, weight_M: Tensor | None = None) -> Tensor:
        """Returns, for each group, the (weighted) sum of its rows' embeddings (L, D)."""
        return group_bag(self._row_M, self._group_offsets, z_BD, weight_M)


def group_sizes(group_B: Tensor) -> Tensor:
    """Returns the number of rows in each row's group (B,); 0 for a row in no group (-1)."""
    known_B = group_B >= 0
    size = torch.bincount(group_B[known_B]) if bool(known_B.any()) else group_B.new_zeros(1)
    return torch.where(known_B, size[group_B.clamp(min=0)], 0)


def number_groups(value_B: Tensor, known_B: Tensor) -> Tensor:
    """Numbers the groups of equal values; returns each row's group (B,), -1 where `known_B` is false."""
    return torch.where(known_B, torch.unique(value_B, return_inverse=True)[1], -1)


def group_weights(group_B: Tensor, ranks: BatchRanks) -> IncidenceWeights:
    """Returns the weights W_ip = 1[same group] / (n - 1) of groups of n rows; -1 in `group_B` is no group."""
    size_B = group_sizes(group_B)
    width = int(group_B.max()) + 1 if len(group_B) else 0
    weight_B = torch.where(size_B > 1, 1 / (size_B - 1).clamp(min=1).to(ranks.dtype), 0)
    weight_B[len(weight_B) - ranks.queued :] = 0
    rows = LabelRows.from_classes(group_B, width)
    value_M, symmetric = weight_B[group_B >= 0], not ranks.queued
    row_sums_N = (size_B[: ranks.own] > 1).to(ranks.dtype)
    return IncidenceWeights(rows, value_M, row_sums_N, ranks.own, symmetric=symmetric)
