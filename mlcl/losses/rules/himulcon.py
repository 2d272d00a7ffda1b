"""HiMulCon: one positive set for each level of the anchor's path.

Shapes: B candidates, N anchors, H levels.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

from mlcl.labels import LabelRows
from mlcl.losses.paths import LevelWeights, level_groups, level_shares, same_group
from mlcl.losses.spec import LossSpec
from mlcl.losses.weighting import Weighting, others, safe_divide
from mlcl.losses.weights.base import Ranks
from mlcl.losses.weights.incidence import Incidence, IncidenceWeights, group_sizes


def himulcon_weights(
    path_BH: Tensor,
    anchors: slice,
    dtype: torch.dtype,
    *,
    level_weights: LevelWeights = "exp",
    exclusive: bool = False,
) -> Weighting:
    """W_ip = sum_l lambda_l / H 1[p in P_l(i)] / |P_l(i)|, P_l(i) the others with i's path through level l.

    `path_BH` (B, H) integers, coarse level first, -1 unknown: from there on the row has no positives.
    `exclusive` keeps in P_l(i) only the rows whose deepest common level is l. lambda: see `level_shares`.
    Source: HiMulCon (Zhang et al. 2022), Eq. of L^HMC.
    """
    groups_HB = level_groups(path_BH)
    other_NB = others(anchors, len(path_BH), path_BH.device)
    same = [same_group(group_B, anchors, slice(None)) & other_NB for group_B in groups_HB]
    w_NB = torch.zeros(other_NB.shape, dtype=dtype, device=path_BH.device)
    shares = level_shares(len(same), level_weights)
    for level, share in enumerate(shares):
        positive_NB = same[level]
        if exclusive and level + 1 < len(same):
            positive_NB = positive_NB & ~same[level + 1]
        w_NB += safe_divide(share * positive_NB.to(dtype), positive_NB.sum(1, keepdim=True).to(dtype))
    return Weighting(w_NB, (w_NB > 0).sum(1))


def himulcon_closed(
    path_BH: Tensor,
    own: int,
    _ranks: Ranks,
    dtype: torch.dtype,
    *,
    level_weights: LevelWeights = "exp",
    exclusive: bool = False,
) -> IncidenceWeights:
    """The same over the groups of all levels: a row is in one group of each level that it knows."""
    groups_HB = level_groups(path_BH)
    share_H1 = torch.tensor(level_shares(len(groups_HB), level_weights), dtype=dtype, device=path_BH.device)[
        :, None
    ]
    size_HB = torch.stack([group_sizes(group_B) for group_B in groups_HB])
    count_HB = (size_HB - 1).clamp(min=0)
    if exclusive:
        count_HB[:-1] -= count_HB[1:].clone()
    weight_HB = safe_divide(share_H1, count_HB.to(dtype))
    if exclusive:
        # P_l is the group less the next level's group, so that a pair's weights telescope to its level's.
        weight_HB = weight_HB - F.pad(weight_HB[:-1], (0, 0, 1, 0))
    known_BH = (groups_HB >= 0).T
    groups_H = (groups_HB.amax(1) + 1).clamp(min=0) if len(path_BH) else groups_HB.new_zeros(len(groups_HB))
    first_H = F.pad(groups_H.cumsum(0), (1, 0))
    column_BH = (groups_HB + first_H[:-1, None]).T
    rows = LabelRows(F.pad(known_BH.sum(1).cumsum(0), (1, 0)), column_BH[known_BH], int(first_H[-1]))
    incidence = Incidence(rows, weight_HB.T[known_BH], symmetric=not exclusive)
    counted_HB = count_HB * (share_H1 > 0)
    positives_B = counted_HB.sum(0) if exclusive else counted_HB.amax(0)
    row_sums_B = (share_H1 * (count_HB > 0)).sum(0).to(dtype)
    return IncidenceWeights(incidence, row_sums_B[:own], lambda: positives_B[:own], own)


HIMULCON = LossSpec(
    name="himulcon",
    labels="path",
    summary="one SupCon for each level of the hierarchy, added up with the levels' weights",
    source="HiMulCon (Zhang et al. 2022), L^HMC",
    dense=himulcon_weights,
    closed=himulcon_closed,
)
