"""Paths of rows that may have several paths through a hierarchy, as the sets of the paths' nodes.

The depth of a pair of rows is the number of levels down to the finest level at which they share a node.

Shapes: N own rows, B rows, H levels, L nodes, M stored nodes, U distinct rows (the first V of them in own
rows), D embedding; I and J are slices of rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import torch
import torch.nn.functional as F
from torch import Tensor

from mlcl.labels import LabelRows, copy_to_device
from mlcl.losses import tiling
from mlcl.losses.sets import LabelSets, bag, cross
from mlcl.losses.tiling import tiles
from mlcl.losses.weights.base import BatchRanks, DistinctSets, PairWeights
from mlcl.losses.weights.paths import OnePath


class NodeDepth:
    """Computes the depth of pairs: the number of levels down to the finest at which they share a node."""

    def __init__(self, nodes: LabelRows) -> None:
        self._nodes = nodes
        # A node of level l scores base^l, so that all coarser nodes of a row together score less.
        base = 2.0 * float(nodes.known_offsets.diff().max() + 1) if len(nodes) else 2.0
        score_H = base ** torch.arange(len(nodes.levels), dtype=torch.float64)
        self._scores = score_H.tolist()
        self._score_L = copy_to_device(score_H.repeat_interleave(torch.tensor(nodes.levels)), nodes.device)

    def __call__(self, rows: slice, cols: slice) -> Tensor:
        """Returns the depth of a tile of rows, int8 (I, J); for a row with itself, its number of levels."""
        score_M = self._score_L[self._nodes.part(rows)[0]]
        return self._depth(cross(self._nodes, rows, cols, torch.float64, score_M))

    def of_rows(self, index_A: Tensor) -> Tensor:
        """Returns the depth of each of the rows `index_A` with all rows, int8 (A, B)."""
        nodes = self._nodes
        has_MA = (nodes.row_index()[:, None] == index_A).double()
        score_LA = has_MA.new_zeros(nodes.width, len(index_A)).index_add_(0, nodes.columns, has_MA)
        return self._depth(bag(nodes.columns, nodes.offsets, score_LA * self._score_L[:, None]).T)

    def _depth(self, score_IJ: Tensor) -> Tensor:
        depth_IJ = torch.zeros(score_IJ.shape, dtype=torch.int8, device=score_IJ.device)
        for score in self._scores:
            depth_IJ += score_IJ >= score
        return depth_IJ


def paths_of_sets(sets: LabelSets) -> Tensor:
    """Numbers the sets of nodes that rows have at each level (B, H); -1 where a row has no node.

    Read as paths, rows share a level if they have equal sets of nodes at it and at every coarser level.
    """
    assert sets.rows is not None
    ends, numbers = torch.tensor(sets.rows.levels).cumsum(0).tolist(), []
    for end, width in zip(ends, sets.rows.levels, strict=True):
        at_level = sets.rows.only(torch.arange(end - width, end, device=sets.rows.device))
        index_B = LabelSets.of_rows(at_level).find_distinct()[1]
        numbers.append(index_B.masked_fill(at_level.counts() == 0, -1))
    return torch.stack(numbers, 1)


class SeveralPaths:
    """Paths of rows that are given by sets of nodes, which include the parents of each node; see `OnePath`.

    The hierarchy has `sets.rows.levels` nodes at each level. `key` is computed on the labels' device, the
    depth of pairs on the device of the ranks.
    """

    def __init__(self, sets: LabelSets, ranks: BatchRanks) -> None:
        assert sets.rows is not None
        self._sets, self._ranks = sets, ranks
        self._device = ranks.device or sets.sizes.device
        self.levels = len(sets.rows.levels)
        first_B = F.pad(sets.rows.columns, (0, 1))[sets.rows.offsets[:-1]]
        self.key = torch.where(sets.sizes > 0, first_B, -1)

    def depth(self, rows: slice, cols: slice) -> Tensor:
        """Returns the depth of pairs (I, J), see `NodeDepth`."""
        return self._depth(rows, cols)

    def depth_of(self, index_A: Tensor) -> Tensor:
        """Returns the depth of each of the rows `index_A` with each row of the batch, as int8 (A, B)."""
        return self._depth.of_rows(index_A)

    def may_share(self, runs: Sequence[slice]) -> list[list[bool]]:
        """Returns, for each two runs, whether they share a node of the coarsest level."""
        assert self._sets.rows is not None
        has_RL = torch.zeros(len(runs), self._sets.rows.width, dtype=torch.float32)
        for has_L, run in zip(has_RL, runs, strict=True):
            has_L[self._sets.rows.part(run)[0]] = 1
        has_RL = has_RL[:, : self._sets.rows.levels[0]]
        overlaps: list[list[bool]] = (has_RL @ has_RL.T > 0).tolist()
        return overlaps

    def take(self, index: Tensor) -> SeveralPaths:
        """Returns the paths of the rows with these numbers, in this order."""
        return SeveralPaths(self._sets.take(index), self._ranks)

    def counts(self) -> Tensor:
        """Returns |P_l(i)| (H, B), counted over pairs of distinct sets, in each process for its own rows."""
        distinct, depth = self._distinct_sets, self._distinct_depth
        count_HV = distinct.rows.new_zeros(self.levels, distinct.own)
        for rows, cols, mirrored in tiles(distinct.rows.device, distinct.own, len(distinct.rows)):
            depth_IJ = depth(rows, cols)
            for level, count_V in enumerate(count_HV):
                shared_IJ = (depth_IJ > level).to(self._ranks.dtype)
                count_V[rows] += shared_IJ @ distinct.rows[cols]
                if mirrored:
                    count_V[cols] += shared_IJ.T @ distinct.rows[rows]
                if rows == cols:
                    count_V[rows] -= shared_IJ.diagonal()
        count_NH = count_HV.T[distinct.own_index].round().long()
        return self._ranks.share(count_NH).T

    def weights(
        self,
        weight_HB: Tensor,
        row_sums_N: Tensor,
        *,
        symmetric: bool = True,  # noqa: ARG002 (W_ij and W_ji are added up)
    ) -> PairWeights:
        """Returns weights over pairs of distinct sets; rows with equal sets must have equal `weight_HB`."""
        weight_HU = weight_HB.new_zeros(self.levels, len(self._distinct_sets.rows))
        weight_HU.index_copy_(1, self._distinct_sets.index, weight_HB)
        return _DepthWeights(self._distinct_sets, self._distinct_depth, weight_HU, row_sums_N)

    @cached_property
    def _distinct_sets(self) -> DistinctSets:
        return DistinctSets(self._sets, self._ranks)

    @cached_property
    def _depth(self) -> NodeDepth:
        assert self._sets.rows is not None
        return NodeDepth(self._sets.rows.to(self._device))

    @cached_property
    def _distinct_depth(self) -> NodeDepth:
        assert self._distinct_sets.sets.rows is not None
        return NodeDepth(self._distinct_sets.sets.rows)


Paths = OnePath | SeveralPaths


class _DepthWeights(PairWeights):
    """The weights W_uv = sum_l a_ul 1[u and v share level l] of distinct sets; a product takes O(V U D)."""

    def __init__(
        self, distinct: DistinctSets, depth: NodeDepth, weight_HU: Tensor, row_sums_N: Tensor
    ) -> None:
        self.row_sums = row_sums_N
        self._distinct_sets, self._depth = distinct, depth
        on_host = tiling.is_host(weight_HU.device)
        self._weights = [
            (level, weight_U) for level, weight_U in enumerate(weight_HU) if not on_host or weight_U.any()
        ]

    def attract(self, z_BD: Tensor) -> Tensor:
        return self._distinct_sets.attract(self._symmetric_weights, z_BD)

    def _symmetric_weights(self, rows: slice, cols: slice) -> Tensor:
        """Returns W_uv + W_vu of a tile of distinct sets (I, J)."""
        depth_IJ = self._depth(rows, cols)
        both_IJ = torch.zeros(depth_IJ.shape, dtype=self.row_sums.dtype, device=depth_IJ.device)
        for level, weight_U in self._weights:
            both_IJ.add_((weight_U[rows, None] + weight_U[cols]).mul_(depth_IJ > level))
        return both_IJ
