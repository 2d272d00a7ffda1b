"""Paths through a hierarchy: the number of levels that rows share, and weights that add up over levels.

Shapes: N own rows (the first), B rows, H levels; I and J are slices of rows.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from functools import cached_property

import torch
import torch.nn.functional as F
from torch import Tensor

from mlcl.labels import LabelRows, sent
from mlcl.losses.tiling import is_host
from mlcl.losses.weights.base import BatchRanks, PairWeights
from mlcl.losses.weights.incidence import Incidence, IncidenceWeights, group_sizes, number_groups


class Paths(ABC):
    """The paths of B rows. Rows that share a level share the coarser ones too: a pair has a depth.

    `levels` is H. `key` (B,) sorts rows that share levels together, -1 for a row without a known level.
    """

    levels: int
    key: Tensor

    @abstractmethod
    def depth(self, rows: slice, cols: slice) -> Tensor:
        """Number of levels (I, J) that two rows share from the coarsest on; arbitrary on the diagonal."""

    @abstractmethod
    def depth_of(self, index_A: Tensor) -> Tensor:
        """Number of levels (A, B) that each of these rows shares with each row of the batch, int8."""

    @abstractmethod
    def may_share(self, runs: Sequence[slice]) -> list[list[bool]]:
        """Whether each two of these runs of rows, sorted by `key`, may have pairs that share a level."""

    @abstractmethod
    def take(self, index: Tensor) -> Paths:
        """The given rows, in that order, to be used for `depth` alone."""

    @abstractmethod
    def counts(self) -> Tensor:
        """|P_l(i)|: the other rows that share level l with row i (H, B), int64."""

    @abstractmethod
    def weights(
        self,
        weight_HB: Tensor,
        row_sums_N: Tensor,
        positives: Callable[[], Tensor],
        *,
        symmetric: bool = True,
    ) -> PairWeights:
        """W_ip = sum_l a_il 1[i and p share level l], a = `weight_HB`.

        `symmetric` says that a_il is equal for all rows with i's path through level l.
        """


class OnePath(Paths):
    """One path a row, as groups of rows with the same path through a level."""

    def __init__(self, groups_HB: Tensor, ranks: BatchRanks) -> None:
        self.levels = len(groups_HB)
        self.key = groups_HB[0]
        self._groups = groups_HB
        self._ranks = ranks

    @cached_property
    def _keys(self) -> Tensor:
        """The groups, on the device on which they are compared; a row in no group has a number of its own."""
        own_B = -1 - torch.arange(self._groups.shape[1], device=self._groups.device)
        keys_HB = torch.where(self._groups < 0, own_B, self._groups)
        return sent(keys_HB, self._ranks.device or keys_HB.device)

    @classmethod
    def of(cls, path_BH: Tensor, ranks: BatchRanks) -> OnePath:
        """Groups from paths, coarse first; from its first unknown label (-1) on, a row is in no group."""
        groups = []
        group_B = path_BH.new_zeros(len(path_BH))
        for label_B in path_BH.unbind(1):
            known_B = (group_B >= 0) & (label_B >= 0)
            label_B = number_groups(label_B, label_B >= 0)
            group_B = number_groups(group_B * (len(path_BH) + 1) + label_B, known_B)
            groups.append(group_B)
        return cls(torch.stack(groups), ranks)

    def depth(self, rows: slice, cols: slice) -> Tensor:
        """Compares the groups of each level."""
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
        """Compares the groups of each level."""
        return (self._keys[:, index_A, None] == self._keys[:, None]).sum(0, dtype=torch.int8)

    def may_share(self, runs: Sequence[slice]) -> list[list[bool]]:
        """Whether the ranges of the runs' coarsest groups overlap."""
        first_R = self.key[[run.start for run in runs]]
        last_R = self.key[[run.stop - 1 for run in runs]]
        meets: list[list[bool]] = ((first_R[:, None] <= last_R) & (first_R <= last_R[:, None])).tolist()
        return meets

    def take(self, index: Tensor) -> OnePath:
        """The given rows; groups keep their numbers."""
        return OnePath(self._groups[:, index], self._ranks)

    def counts(self) -> Tensor:
        """The sizes of the groups, less the row itself."""
        return torch.stack([(group_sizes(group_B) - 1).clamp(min=0) for group_B in self._groups])

    def weights(
        self,
        weight_HB: Tensor,
        row_sums_N: Tensor,
        positives: Callable[[], Tensor],
        *,
        symmetric: bool = True,
    ) -> IncidenceWeights:
        """Weights over the groups of the levels that have a weight; a row is in one group of each."""
        used_H = weight_HB.any(1)
        groups_HB, weight_HB = self._groups[used_H], weight_HB[used_H]
        known_BH = (groups_HB >= 0).T
        size_H = F.pad(groups_HB, (1, 0), value=-1).amax(1) + 1
        first_H = F.pad(size_H.cumsum(0), (1, 0))
        column_BH = (groups_HB + first_H[:-1, None]).T
        rows = LabelRows(F.pad(known_BH.sum(1).cumsum(0), (1, 0)), column_BH[known_BH], int(first_H[-1]))
        incidence = Incidence(rows, weight_HB.T[known_BH], symmetric)
        return IncidenceWeights(incidence, row_sums_N, positives, self._ranks.own)
