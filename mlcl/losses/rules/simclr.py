"""SimCLR: the other views of the same sample attract. Shapes: B candidates, N anchors."""

import torch
from torch import Tensor

from mlcl.losses.dense import Weighting, candidate_mask, uniform_weighting
from mlcl.losses.spec import LossSpec
from mlcl.losses.weights.base import BatchRanks
from mlcl.losses.weights.incidence import IncidenceWeights, group_weights


def simclr_weights(sample_B: Tensor, anchors: slice, dtype: torch.dtype) -> Weighting:
    """W_ip = 1[p is another view of i's sample] / (number of other views).

    `sample_B` (B,) are integer ids of each row's sample. It is SupCon with one class for each sample.
    Source: SimCLR (Chen et al. 2020), Eq. 1; more than two views as in Khosla et al. 2020.
    """
    same_NB = sample_B[anchors, None] == sample_B
    return uniform_weighting(same_NB & candidate_mask(anchors, len(sample_B), sample_B.device), dtype)


def simclr_closed(sample_B: Tensor, ranks: BatchRanks) -> IncidenceWeights:
    """Returns the closed form of the weights, with one group for each sample."""
    return group_weights(torch.unique(sample_B, return_inverse=True)[1], ranks)


SIMCLR = LossSpec(
    name="simclr",
    labels="none",
    summary="the other views of the same sample attract",
    source="Chen et al. 2020, Eq. 1",
    year=2020,
    dense=simclr_weights,
    closed=simclr_closed,
    queue=True,
    on_host=True,
)
