"""Paths through a hierarchy: the number of levels that rows share, and weights that are sums over levels.

Shapes: N own rows (the first), B rows, H levels; I and J are slices of rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import torch
import torch.nn.functional as F
from torch import Tensor

from mlcl.labels import LabelRows, copy_to_device
from mlcl.losses.tiling import is_host
from mlcl.losses.weights.base import BatchRanks
from mlcl.losses.weights.incidence import IncidenceWeights, group_sizes, number_groups


class OnePath:
    """Paths of B rows that have one path each, as the groups of rows with equal paths down to each level.

    Two rows that share a level share the coarser levels, too; the number of levels they share is their depth.
    `levels` is H. Sorting by `key` (B,) puts rows that share levels next to each other; it is -1 for a row
    without a known level.
    """

    def __init__(self, groups_HB: Tensor, ranks: BatchRanks) -> None:
        self.levels = len(groups_HB)
        self.key = groups_HB[0]
        self._groups = groups_HB
        self._ranks = ranks

    @cached_property
    def _keys(self) -> Tensor:
        """The rows' groups (H, B), on the embeddings' device; a unique negative number for a row in none."""
        number_B = -1 - torch.arange(self._groups.shape[1], device=self._groups.device)
        keys_HB = torch.where(self._groups < 0, number_B, self._groups)
        return copy_to_device(keys_HB, self._ranks.device or keys_HB.device)

    @classmethod
    def of(cls, path_BH: Tensor, ranks: BatchRanks) -> OnePath:
        """Computes groups from paths (B, H), coarse level first; -1, no group, from an unknown level on."""
        groups = []
        group_B = path_BH.new_zeros(len(path_BH))
        for label_B in path_BH.unbind(1):
            known_B = (group_B >= 0) & (label_B >= 0)
            label_B = number_groups(label_B, label_B >= 0)
            group_B = number_groups(group_B * (len(path_BH) + 1) + label_B, known_B)
            groups.append(group_B)
        return cls(torch.stack(groups), ranks)

    def depth(self, rows: slice, cols: slice) -> Tensor:
        """Returns the depth of pairs (I, J), the number of levels that they share; arbitrary if i = j."""
        key_HI, key_HJ = self._keys[:, rows], self._keys[:, cols]
        depth_IJ = torch.zeros(key_HI.shape[1], key_HJ.shape[1], dtype=torch.int8, device=key_HI.device)
        on_host = is_host(depth_IJ.device)
        for key_I, key_J in zip(key_HI, key_HJ, strict=True):
            if not depth_IJ.numel():
                break
            if on_host and (key_I.max() < key_J.min() or key_J.max() < key_I.min()):
                break
            depth_IJ += key_I[:, None] == key_J
        return depth_IJ

    def depth_of(self, index_A: Tensor) -> Tensor:
        """Returns the depth of each of the rows `index_A` with each row of the batch, as int8 (A, B)."""
        return (self._keys[:, index_A, None] == self._keys[:, None]).sum(0, dtype=torch.int8)

    def may_share(self, runs: Sequence[slice]) -> list[list[bool]]:
        """Returns, for each two runs of rows sorted by `key`, whether their coarsest groups overlap."""
        first_R = self.key[[run.start for run in runs]]
        last_R = self.key[[run.stop - 1 for run in runs]]
        meets: list[list[bool]] = ((first_R[:, None] <= last_R) & (first_R <= last_R[:, None])).tolist()
        return meets

    def take(self, index: Tensor) -> OnePath:
        """Returns the paths of the rows with these numbers; groups keep their numbers."""
        return OnePath(self._groups[:, index], self._ranks)

    def counts(self) -> Tensor:
        """Returns |P_l(i)|, the number of other rows that share level l with row i, as int64 (H, B)."""
        return torch.stack([(group_sizes(group_B) - 1).clamp(min=0) for group_B in self._groups])

    def weights(self, weight_HB: Tensor, row_sums_N: Tensor, *, symmetric: bool = True) -> IncidenceWeights:
        """Returns the weights W_ip = sum_l a_il 1[i and p share level l], a = `weight_HB`.

        `row_sums_N` are their row sums. `symmetric` says that a_il is equal for all rows with i's path
        through level l.
        """
        weight_HB[:, weight_HB.shape[1] - self._ranks.queued :] = 0
        used_H = weight_HB.any(1)
        groups_HB, weight_HB = self._groups[used_H], weight_HB[used_H]
        known_BH = (groups_HB >= 0).T
        size_H = F.pad(groups_HB, (1, 0), value=-1).amax(1) + 1
        offset_H = F.pad(size_H.cumsum(0), (1, 0))
        column_BH = (groups_HB + offset_H[:-1, None]).T
        rows = LabelRows(F.pad(known_BH.sum(1).cumsum(0), (1, 0)), column_BH[known_BH], int(offset_H[-1]))
        value_M, symmetric = weight_HB.T[known_BH], symmetric and not self._ranks.queued
        return IncidenceWeights(rows, value_M, row_sums_N, self._ranks.own, symmetric=symmetric)
