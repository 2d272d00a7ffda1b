"""HiMulCon: one positive set for each level of the anchor's path.

Shapes: B candidates, N anchors, H levels.
"""

import math
from collections.abc import Sequence
from typing import Annotated, Literal

import torch
from torch import Tensor

from mlcl.labels import copy_to_device
from mlcl.losses.dense import Weighting, candidate_mask, safe_divide
from mlcl.losses.sets import LabelSets
from mlcl.losses.spec import LevelNumbers, LossSpec
from mlcl.losses.weights.base import BatchRanks, PairWeights
from mlcl.losses.weights.paths import OnePath
from mlcl.losses.weights.several_paths import Paths, SeveralPaths, paths_of_sets

LevelWeights = Annotated[Literal["exp", "uniform"] | Sequence[float], LevelNumbers()]
Positives = Literal["overlapping", "equal"]
PathLabels = Tensor | LabelSets
"""Paths (B, H), coarse level first, -1 unknown; if rows have several paths, the sets of the paths' nodes."""


def paths_of(
    labels: PathLabels, ranks: BatchRanks | None = None, positives: Positives = "overlapping"
) -> Paths:
    """Returns the paths of all rows; `ranks` are the processes that share the batch, by default this one.

    `positives` says when rows with several paths share a level: if they have a common node there, or equal
    sets of nodes.
    """
    ranks = ranks or BatchRanks()
    if not isinstance(labels, LabelSets):
        return OnePath.of(labels, ranks)
    if positives == "equal":
        return OnePath.of(paths_of_sets(labels), ranks)
    return SeveralPaths(labels, ranks)


def level_shares(levels: int, weights: LevelWeights) -> list[float]:
    """Returns lambda_l / H, coarse first: `exp` is lambda_l = exp(1 / (H - l)) with l = 0 the coarsest.

    Source: HiMulCon (Zhang et al. 2022), whose text leaves lambda open; its training script uses exp.

    Raises:
        ValueError: For a list whose length is not `levels`.
    """
    if weights == "exp":
        numbers = [math.exp(1 / (levels - level)) for level in range(levels)]
    elif weights == "uniform":
        numbers = [1.0] * levels
    else:
        numbers = [float(weight) for weight in weights]
    if len(numbers) != levels:
        raise ValueError(f"level_weights need one number a level; found: {len(numbers)}; allowed: {levels}")
    return [weight / levels for weight in numbers]


def himulcon_weights(
    labels: PathLabels,
    anchors: slice,
    dtype: torch.dtype,
    *,
    level_weights: LevelWeights = "exp",
    exclusive: bool = False,
    positives: Positives = "overlapping",
) -> Weighting:
    """W_ip = sum_l lambda_l / H 1[p in P_l(i)] / |P_l(i)|.

    P_l(i) are the other rows whose paths equal that of i through level l. `labels` are integers (B, H),
    coarse level first. From the first unknown level (-1) on a row has no positives.
    If rows have several paths, `labels` are sets of nodes with levels, and P_l(i) are the other rows that
    share a node with i at level l or at a finer level. With `positives="equal"` they are the other rows with
    the same nodes as i at level l, of which there is at least one, and at all coarser levels.
    `exclusive` keeps in P_l(i) only the rows whose deepest common level is l. `level_shares` defines lambda.
    Source: HiMulCon (Zhang et al. 2022), Eq. of L^HMC; overlapping paths are our extension, and equal sets
    are those of HJCL (Yu et al. 2023, arXiv 2310.05128), its loss between instances.
    """
    paths = paths_of(labels, positives=positives)
    candidate_NB = candidate_mask(anchors, len(labels), paths.key.device)
    depth_NB = paths.depth(anchors, slice(0, len(labels))) * candidate_NB
    w_NB = torch.zeros(candidate_NB.shape, dtype=dtype, device=paths.key.device)
    for level, share in enumerate(level_shares(paths.levels, level_weights)):
        positive_NB = depth_NB == level + 1 if exclusive else depth_NB > level
        w_NB += safe_divide(share * positive_NB.to(dtype), positive_NB.sum(1, keepdim=True).to(dtype))
    return Weighting(w_NB, (w_NB > 0).sum(1))


def himulcon_closed(
    labels: PathLabels,
    ranks: BatchRanks,
    *,
    level_weights: LevelWeights,
    exclusive: bool,
    positives: Positives,
) -> PairWeights:
    """Returns the closed form of the weights, which are sums over the levels that pairs share."""
    paths, dtype = paths_of(labels, ranks, positives), ranks.dtype
    count_HB = paths.counts()
    share_H = torch.tensor(level_shares(paths.levels, level_weights), dtype=dtype)
    share_H1 = copy_to_device(share_H, count_HB.device)[:, None]
    if exclusive:
        count_HB[:-1] -= count_HB[1:].clone()
    weight_HB = safe_divide(share_H1, count_HB.to(dtype))
    if exclusive:
        # P_l lacks the next level's rows, so a pair's weights telescope to the weight of its level.
        weight_HB[1:] -= weight_HB[:-1].clone()
    row_sums_B = (share_H1 * (count_HB > 0)).sum(0).to(dtype)
    return paths.weights(weight_HB, row_sums_B[: ranks.own], symmetric=not exclusive)


HIMULCON = LossSpec(
    name="himulcon",
    labels="path",
    summary="one SupCon for each level of the hierarchy, added up with the levels' weights",
    source="HiMulCon (Zhang et al. 2022), L^HMC",
    year=2022,
    dense=himulcon_weights,
    closed=himulcon_closed,
    queue=True,
    on_host=True,
)
