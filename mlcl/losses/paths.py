"""The levels of a hierarchy as losses weigh them, and the paths of a batch's rows through them.

Shapes: B rows, H levels.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Annotated, Literal

import torch
from torch import Tensor

from mlcl.losses.options import LevelNumbers
from mlcl.losses.sets import LabelSets
from mlcl.losses.weights.base import Ranks
from mlcl.losses.weights.paths import OnePath, Paths
from mlcl.losses.weights.several_paths import SeveralPaths

LevelWeights = Annotated[Literal["exp", "uniform"] | Sequence[float], LevelNumbers()]
PathLabels = Tensor | LabelSets
"""Paths (B, H), coarse level first, -1 unknown; or, for several paths a row, the nodes of each row."""


def paths_of(
    labels: PathLabels, own: int = 0, ranks: Ranks | None = None, dtype: torch.dtype = torch.float32
) -> Paths:
    """The paths of all rows, the first `own` of which are anchors with weights of this dtype."""
    if isinstance(labels, LabelSets):
        return SeveralPaths(labels, own, ranks or Ranks(), dtype)
    return OnePath.of(labels, own)


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
