"""SupCon: rows of the same class attract. Shapes: B candidates, N anchors."""

import torch
from torch import Tensor

from mlcl.losses.dense import Weighting, candidate_mask, uniform_weighting
from mlcl.losses.spec import LossSpec
from mlcl.losses.weights.base import BatchRanks
from mlcl.losses.weights.incidence import IncidenceWeights, group_weights, number_groups


def supcon_weights(class_B: Tensor, anchors: slice, dtype: torch.dtype) -> Weighting:
    """W_ip = 1[c_i = c_p] / |P(i)|.

    `class_B` (B,) are integer classes. A row without a class (-1) has no positives and is no positive of
    other rows, but is their candidate.
    Source: MLCL Eq. 1 (Khosla et al. 2020, L_out).
    """
    same_NB = (class_B[anchors, None] == class_B) & (class_B[anchors, None] >= 0)
    return uniform_weighting(same_NB & candidate_mask(anchors, len(class_B), class_B.device), dtype)


def supcon_closed(class_B: Tensor, ranks: BatchRanks) -> IncidenceWeights:
    """Returns the closed form of the weights, with one group for each class."""
    return group_weights(number_groups(class_B, class_B >= 0), ranks)


SUPCON = LossSpec(
    name="supcon",
    labels="class",
    summary="rows of the same class attract",
    source="MLCL Eq. 1",
    year=2020,
    dense=supcon_weights,
    closed=supcon_closed,
    queue=True,
    on_host=True,
)
