"""The levels of a hierarchy as losses weigh them, and the paths of a batch's rows through them.

Several paths a row are the nodes that they go through: a pair's depth is the deepest that any two share.

Shapes: N own rows, B rows, H levels, L nodes, M stored nodes, U distinct rows (the first V of them in own
rows), D embedding; I and J are slices of rows.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Annotated, Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from mlcl.labels import LabelRows, sent
from mlcl.losses import tiling
from mlcl.losses.options import LevelNumbers
from mlcl.losses.sets import DistinctSets, LabelSets, bag, cross
from mlcl.losses.tiling import tiles
from mlcl.losses.weights.base import PairWeights, Ranks
from mlcl.losses.weights.paths import OnePath, Paths


class NodeDepth:
    """The finest level of which pairs of rows share a node."""

    def __init__(self, nodes: LabelRows) -> None:
        self._nodes = nodes
        # A node of level l counts base^l, so that all coarser nodes of a row together count less.
        base = 2.0 * float(nodes.known_offsets.diff().max() + 1) if len(nodes) else 2.0
        score_H = base ** torch.arange(len(nodes.levels), dtype=torch.float64)
        self._scores = score_H.tolist()
        self._score_L = sent(score_H.repeat_interleave(torch.tensor(nodes.levels)), nodes.device)

    def __call__(self, rows: slice, cols: slice) -> Tensor:
        """The number of levels up to this one (I, J), int8; of a row with itself those that it knows."""
        score_M = self._score_L[self._nodes.part(rows)[0]]
        return self._depth(cross(self._nodes, rows, cols, torch.float64, score_M))

    def of_rows(self, index_A: Tensor) -> Tensor:
        """The same of these rows with all (A, B)."""
        nodes = self._nodes
        has_MA = (nodes.row_index()[:, None] == index_A).double()
        score_LA = has_MA.new_zeros(nodes.width, len(index_A)).index_add_(0, nodes.columns, has_MA)
        return self._depth(bag(nodes.columns, nodes.offsets, score_LA * self._score_L[:, None]).T)

    def _depth(self, score_IJ: Tensor) -> Tensor:
        depth_IJ = torch.zeros(score_IJ.shape, dtype=torch.int8, device=score_IJ.device)
        for score in self._scores:
            depth_IJ += score_IJ >= score
        return depth_IJ


class SeveralPaths(Paths):
    """Rows of nodes, `sets.rows.levels` of them at each level, with their parents.

    Their structure is made where they are, what pairs share on the device of the ranks.
    """

    def __init__(self, sets: LabelSets, own: int, ranks: Ranks, dtype: torch.dtype) -> None:
        assert sets.rows is not None
        self._sets, self._own, self._ranks, self._dtype = sets, own, ranks, dtype
        self._device = ranks.device or sets.sizes.device
        self.levels = len(sets.rows.levels)
        first_B = F.pad(sets.rows.columns, (0, 1))[sets.rows.offsets[:-1]]
        self.key = torch.where(sets.sizes > 0, first_B, -1)

    def depth(self, rows: slice, cols: slice) -> Tensor:
        """By the finest level of which they share a node."""
        return self._depth(rows, cols)

    def depth_of(self, index_A: Tensor) -> Tensor:
        """Likewise."""
        return self._depth.of_rows(index_A)

    def meeting(self, runs: Sequence[slice]) -> list[list[bool]]:
        """Those that have a node of the coarsest level in common."""
        assert self._sets.rows is not None
        meets_RL = torch.zeros(len(runs), self._sets.rows.width, dtype=torch.float32)
        for meets_L, run in zip(meets_RL, runs, strict=True):
            meets_L[self._sets.rows.part(run)[0]] = 1
        meets_RL = meets_RL[:, : self._sets.rows.levels[0]]
        shared: list[list[bool]] = (meets_RL @ meets_RL.T > 0).tolist()
        return shared

    def take(self, index: Tensor) -> SeveralPaths:
        """With the same nodes."""
        return SeveralPaths(self._sets.take(index), self._own, self._ranks, self._dtype)

    def counts(self) -> Tensor:
        """Over pairs of distinct rows; each process counts for its own rows."""
        distinct, depth = self._distinct, self._distinct_depth
        count_HV = torch.zeros(self.levels, distinct.own, dtype=self._dtype, device=distinct.rows.device)
        for rows, cols, mirrored in tiles(distinct.rows.device, distinct.own, len(distinct.rows)):
            depth_IJ = depth(rows, cols)
            for level, count_V in enumerate(count_HV):
                shared_IJ = (depth_IJ > level).to(self._dtype)
                count_V[rows] += shared_IJ @ distinct.rows[cols]
                if mirrored:
                    count_V[cols] += shared_IJ.T @ distinct.rows[rows]
                if rows == cols:
                    count_V[rows] -= shared_IJ.diagonal()
        count_NH = count_HV.T[distinct.own_place].round().long()
        return self._ranks.share(count_NH).T

    def weights(
        self,
        weight_HB: Tensor,
        row_sums_N: Tensor,
        positives: Callable[[], Tensor],
        *,
        symmetric: bool = True,  # noqa: ARG002 (both sides are added up)
    ) -> PairWeights:
        """Over pairs of distinct rows, which have equal weights."""
        weight_HU = weight_HB.new_zeros(self.levels, len(self._distinct.rows))
        weight_HU.index_copy_(1, self._distinct.place, weight_HB)
        return _DepthWeights(self._distinct, self._distinct_depth, weight_HU, row_sums_N, positives)

    @cached_property
    def _distinct(self) -> DistinctSets:
        return DistinctSets(self._sets, self._own, self._dtype, self._device)

    @cached_property
    def _depth(self) -> NodeDepth:
        assert self._sets.rows is not None
        return NodeDepth(self._sets.rows.to(self._device))

    @cached_property
    def _distinct_depth(self) -> NodeDepth:
        assert self._distinct.sets.rows is not None
        return NodeDepth(self._distinct.sets.rows)


class _DepthWeights(PairWeights):
    """W_uv = sum_l a_ul 1[u and v share level l] of distinct rows: V U D for the product."""

    def __init__(
        self,
        distinct: DistinctSets,
        depth: NodeDepth,
        weight_HU: Tensor,
        row_sums_N: Tensor,
        positives: Callable[[], Tensor],
    ) -> None:
        self.row_sums = row_sums_N
        self._distinct, self._depth, self._positives = distinct, depth, positives
        on_host = tiling.is_host(weight_HU.device)
        self._weights = [
            (level, weight_U) for level, weight_U in enumerate(weight_HU) if not on_host or weight_U.any()
        ]

    def positives(self) -> Tensor:
        return self._positives()

    def has_positive(self) -> Tensor:
        return self.row_sums > 0

    def attract(self, z_BD: Tensor) -> Tensor:
        return self._distinct.attract(self._both, z_BD)

    def _both(self, rows: slice, cols: slice) -> Tensor:
        """W_uv + W_vu of a tile of distinct rows (I, J)."""
        depth_IJ = self._depth(rows, cols)
        both_IJ = torch.zeros(depth_IJ.shape, dtype=self.row_sums.dtype, device=depth_IJ.device)
        for level, weight_U in self._weights:
            both_IJ.add_((weight_U[rows, None] + weight_U[cols]).mul_(depth_IJ > level))
        return both_IJ


LevelWeights = Annotated[Literal["exp", "uniform"] | Sequence[float], LevelNumbers()]
PathLabels = Tensor | LabelSets
"""Paths (B, H), coarse level first, -1 unknown; or, for several paths a row, the nodes of each row."""


def paths_of(
    labels: PathLabels, own: int = 0, ranks: Ranks | None = None, dtype: torch.dtype = torch.float32
) -> Paths:
    """The paths of all rows, the first `own` of which are anchors with weights of this dtype."""
    if isinstance(labels, LabelSets):
        return SeveralPaths(labels, own, ranks or Ranks(), dtype)
    return OnePath.of(labels, own, ranks.device if ranks else None)


def level_shares(levels: int, weights: LevelWeights) -> list[float]:
    """lambda_l / H, coarse first: `exp` is lambda_l = exp(1 / (H - l)) with l = 0 the coarsest.

    Source: HiMulCon (Zhang et al. 2022), whose text leaves lambda open; exp is that of its training script.
    Raises ValueError for a list of another length.
    """
    if weights == "exp":
        chosen = [math.exp(1 / (levels - level)) for level in range(levels)]
    elif weights == "uniform":
        chosen = [1.0] * levels
    else:
        chosen = [float(weight) for weight in weights]
    if len(chosen) != levels:
        raise ValueError(f"level_weights need one number a level; found: {len(chosen)}; allowed: {levels}")
    return [weight / levels for weight in chosen]
