"""ALL: the rows with the same label set. Shapes: B candidates, N anchors, L labels."""

import torch
from torch import Tensor

from mlcl.losses.relations import count_pairs
from mlcl.losses.spec import LossSpec, flag
from mlcl.losses.weighting import Weighting, others, uniform


def all_weights(y_BL: Tensor, anchors: slice, dtype: torch.dtype, *, empty_match: bool = True) -> Weighting:
    """W_ip = 1[y_i = y_p] / |P(i)|.

    As printed, two rows without labels are equal and so positive; `empty_match=False` leaves them without.
    Source: Similarity-Dissimilarity, Eq. 1 and 3.
    """
    counts = count_pairs(y_BL[anchors], y_BL)
    equal_NB = (counts.shared == counts.anchor_size) & (counts.shared == counts.candidate_size)
    if not empty_match:
        equal_NB &= counts.anchor_size > 0
    return uniform(equal_NB & others(anchors, len(y_BL), y_BL.device), dtype)


ALL = LossSpec(
    "all",
    "multi_label",
    "Similarity-Dissimilarity, Eq. 1 and 3",
    all_weights,
    {"empty_match": flag(True)},
)
