"""Paths through a hierarchy: the groups of rows that share one, level by level, and the levels' weights.

Shapes: B rows, H levels.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Annotated, Literal

import torch
from torch import Tensor

from mlcl.losses.options import LevelNumbers
from mlcl.losses.weights.incidence import numbered

LevelWeights = Annotated[Literal["exp", "uniform"] | Sequence[float], LevelNumbers()]


def level_groups(path_BH: Tensor) -> Tensor:
    """For each level the group of rows with one path through it (H, B); -1 from the first unknown on."""
    groups = []
    group_B = path_BH.new_zeros(len(path_BH))
    for label_B in path_BH.unbind(1):
        known_B = (group_B >= 0) & (label_B >= 0)
        label_B = numbered(label_B, label_B >= 0)
        group_B = numbered(group_B * (len(path_BH) + 1) + label_B, known_B)
        groups.append(group_B)
    return torch.stack(groups) if groups else path_BH.new_zeros(0, len(path_BH))


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


def same_group(group_B: Tensor, rows: Tensor | slice, cols: Tensor | slice) -> Tensor:
    """Whether two rows are in one group, (I, J); a row in none (-1) shares no group."""
    group_I1 = group_B[rows, None]
    return (group_I1 == group_B[cols]) & (group_I1 >= 0)
