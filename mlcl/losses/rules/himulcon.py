"""HiMulCon: one positive set for each level of the anchor's path.

Shapes: B candidates, N anchors, H levels.
"""

import torch
import torch.nn.functional as F

from mlcl.labels import sent
from mlcl.losses.paths import LevelWeights, PathLabels, level_shares, paths_of
from mlcl.losses.spec import LossSpec
from mlcl.losses.weighting import Weighting, others, safe_divide
from mlcl.losses.weights.base import PairWeights, Ranks


def himulcon_weights(
    labels: PathLabels,
    anchors: slice,
    dtype: torch.dtype,
    *,
    level_weights: LevelWeights = "exp",
    exclusive: bool = False,
) -> Weighting:
    """W_ip = sum_l lambda_l / H 1[p in P_l(i)] / |P_l(i)|, P_l(i) the others with i's path through level l.

    `labels` are integers (B, H), coarse level first, -1 unknown: from there on the row has no positives; or,
    for several paths a row, sets of nodes with levels: P_l(i) are the others with a path that is one of i's
    through level l or a finer one. `exclusive` keeps in P_l(i) only the rows whose deepest common level is l.
    lambda: see `level_shares`.
    Source: HiMulCon (Zhang et al. 2022), Eq. of L^HMC; several paths are our extension.
    """
    paths = paths_of(labels)
    other_NB = others(anchors, len(labels), paths.key.device)
    depth_NB = paths.depth(anchors, slice(0, len(labels))) * other_NB
    w_NB = torch.zeros(other_NB.shape, dtype=dtype, device=paths.key.device)
    for level, share in enumerate(level_shares(paths.levels, level_weights)):
        positive_NB = depth_NB == level + 1 if exclusive else depth_NB > level
        w_NB += safe_divide(share * positive_NB.to(dtype), positive_NB.sum(1, keepdim=True).to(dtype))
    return Weighting(w_NB, (w_NB > 0).sum(1))


def himulcon_closed(
    labels: PathLabels,
    own: int,
    ranks: Ranks,
    dtype: torch.dtype,
    *,
    level_weights: LevelWeights = "exp",
    exclusive: bool = False,
) -> PairWeights:
    """The same over what pairs share at each level."""
    paths = paths_of(labels, own, ranks, dtype)
    count_HB = paths.counts()
    share_H = torch.tensor(level_shares(paths.levels, level_weights), dtype=dtype)
    share_H1 = sent(share_H, count_HB.device)[:, None]
    if exclusive:
        count_HB[:-1] -= count_HB[1:].clone()
    weight_HB = safe_divide(share_H1, count_HB.to(dtype))
    if exclusive:
        # P_l is level l's rows less the next level's, so that a pair's weights telescope to its level's.
        weight_HB = weight_HB - F.pad(weight_HB[:-1], (0, 0, 1, 0))
    counted_HB = count_HB * (share_H1 > 0)
    positives_B = counted_HB.sum(0) if exclusive else counted_HB.amax(0)
    row_sums_B = (share_H1 * (count_HB > 0)).sum(0).to(dtype)
    return paths.weights(weight_HB, row_sums_B[:own], lambda: positives_B[:own], symmetric=not exclusive)


HIMULCON = LossSpec(
    name="himulcon",
    labels="path",
    summary="one SupCon for each level of the hierarchy, added up with the levels' weights",
    source="HiMulCon (Zhang et al. 2022), L^HMC",
    dense=himulcon_weights,
    closed=himulcon_closed,
    on_host=True,
)
