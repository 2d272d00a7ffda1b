"""HiConE and HiMulConE: a pair's loss at a level is at least the largest pair loss of the finer levels.

Shapes: B rows, N anchors, H levels.
"""

from functools import partial
from typing import Any, Literal

import torch
from torch import Tensor

from mlcl.labels import copy_to_device
from mlcl.losses.dense import Weighting, pair_losses
from mlcl.losses.rules.himulcon import (
    LevelWeights,
    PathLabels,
    Positives,
    himulcon_weights,
    level_shares,
    paths_of,
)
from mlcl.losses.spec import LossSpec, options_of
from mlcl.losses.weights.base import BatchRanks, PairWeights
from mlcl.losses.weights.constraint import ConstrainedLevels
from mlcl.losses.weights.pair_constraint import ConstrainedPairs

Granularity = Literal["pair", "level"]


def himulcone_terms(
    logit_BB: Tensor,
    labels: PathLabels,
    *,
    level_weights: LevelWeights = "exp",
    granularity: Granularity = "pair",
    detach: bool = False,
    positives: Positives = "overlapping",
) -> Tensor:
    """Computes the terms L_i = sum_l lambda_l / H 1/|P_l(i)| sum_{p in P_l(i)} max(l_ip, M_{l+1}) (B,).

    l_ip = -log p_ip; M_l = max(M_{l+1}, largest l_ip of level l in the batch), from the finest level on. With
    `granularity="level"` the maximum is over the levels' mean losses L_l instead of their pair losses: the
    loss of level l is max(L_l, M_{l+1}). With `detach` no gradient flows through M. HiConE has lambda = 1.
    `himulcon_weights` says what `labels` and P_l(i) are.
    Source: HiConE and HiMulConE (Zhang et al. 2022); see the documentation for sign and index of M.
    """
    paths = paths_of(labels, positives=positives)
    all_rows = slice(0, len(labels))
    loss_BB = pair_losses(logit_BB, all_rows)
    depth_BB = copy_to_device(paths.depth(all_rows, all_rows), loss_BB.device).fill_diagonal_(0)
    shares = level_shares(paths.levels, level_weights)
    term_B = 0 * loss_BB.sum(1)
    largest, largest_B = loss_BB.new_full((), -torch.inf), term_B
    for level in reversed(range(len(shares))):
        positive_BB = depth_BB > level
        if granularity == "pair":
            floor = largest.detach() if detach else largest
            raised_BB = torch.where(loss_BB < floor, floor, loss_BB)
            term_B = term_B + shares[level] * _mean_over_positives(positive_BB, raised_BB)
            # Of equally large pair losses, only the first gets the gradient.
            level_loss = loss_BB.masked_fill(~positive_BB, -torch.inf).flatten()
            level_loss = level_loss.max(0).values
            largest = torch.where(level_loss > largest, level_loss, largest)
            continue
        level_B = _mean_over_positives(positive_BB, loss_BB)
        higher = level_B.sum() >= largest
        largest_B = torch.where(higher, level_B, largest_B.detach() if detach else largest_B)
        largest = largest_B.sum()
        term_B = term_B + shares[level] * largest_B
    return term_B


def _mean_over_positives(positive_BB: Tensor, loss_BB: Tensor) -> Tensor:
    return torch.where(positive_BB, loss_BB, 0).sum(1) / positive_BB.sum(1).clamp(min=1)


def unconstrained_weights(
    labels: PathLabels,
    anchors: slice,
    dtype: torch.dtype,
    *,
    level_weights: LevelWeights,
    positives: Positives = "overlapping",
    **_: Any,
) -> Weighting:
    """Returns the weights of HiMulCon, which are those of HiConE if no pair loss is raised."""
    return himulcon_weights(labels, anchors, dtype, level_weights=level_weights, positives=positives)


def himulcone_closed(
    labels: PathLabels,
    ranks: BatchRanks,
    *,
    level_weights: LevelWeights,
    granularity: Granularity,
    detach: bool,
    positives: Positives,
) -> PairWeights:
    """Returns the weights with the constraint, for the tiled engine."""
    paths = paths_of(labels, ranks, positives)
    shares = level_shares(paths.levels, level_weights)
    make = ConstrainedPairs if granularity == "pair" else ConstrainedLevels
    return make(paths, shares, ranks, detach)


HIMULCONE = LossSpec(
    name="himulcone",
    labels="path",
    summary="himulcon in which no pair's loss is below that of a pair of a finer level",
    source="HiMulConE (Zhang et al. 2022)",
    year=2022,
    dense=unconstrained_weights,
    closed=himulcone_closed,
    options=options_of(himulcone_terms),
    terms=himulcone_terms,
    on_host=True,
)
HICONE = LossSpec(
    name="hicone",
    labels="path",
    summary="himulcone with equal weights of the levels",
    source="HiConE (Zhang et al. 2022)",
    year=2022,
    dense=partial(unconstrained_weights, level_weights="uniform"),
    closed=partial(himulcone_closed, level_weights="uniform"),
    options={name: option for name, option in HIMULCONE.options.items() if name != "level_weights"},
    terms=partial(himulcone_terms, level_weights="uniform"),
    on_host=True,
)
