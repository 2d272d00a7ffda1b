"""ALL: rows with the same label set attract. Shapes: B candidates, N anchors."""

import torch
from torch import Tensor

from mlcl.losses.dense import Weighting
from mlcl.losses.relations import LabelCounts, equal_sets
from mlcl.losses.sets import LabelSets
from mlcl.losses.spec import LossSpec
from mlcl.losses.weights.base import BatchRanks
from mlcl.losses.weights.incidence import IncidenceWeights, group_weights
from mlcl.losses.weights.overlap import OverlapRule


def all_weights(
    sets: LabelSets, anchors: slice, dtype: torch.dtype, *, empty_match: bool = True
) -> Weighting:
    """W_ip = 1[y_i = y_p] / |P(i)|.

    As in the paper, two rows without labels are equal, and so positive. With `empty_match=False` rows without
    labels have no positives.
    Source: Similarity-Dissimilarity, Eq. 1 and 3.
    """

    def match_equal_sets(counts: LabelCounts) -> tuple[Tensor, Tensor]:
        positive = equal_sets(counts) & ((counts.anchor_size > 0) | empty_match)
        return positive, positive.to(dtype)

    return OverlapRule(match_equal_sets).dense(sets, anchors, dtype)


def all_closed(sets: LabelSets, ranks: BatchRanks, *, empty_match: bool) -> IncidenceWeights:
    """Returns the closed form of the weights, with one group for each label set."""
    set_B = sets.find_distinct()[1]
    if not empty_match:
        set_B = torch.where(sets.sizes > 0, set_B, -1)
    return group_weights(set_B, ranks)


ALL = LossSpec(
    name="all",
    labels="multi_label",
    summary="rows with the same label set attract",
    source="Similarity-Dissimilarity, Eq. 1 and 3",
    year=2024,
    dense=all_weights,
    closed=all_closed,
    queue=True,
    on_host=True,
)
