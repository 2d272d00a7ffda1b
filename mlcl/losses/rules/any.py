"""ANY: the rows that share a label. Shapes: B candidates, N anchors, L labels."""

import torch
from torch import Tensor

from mlcl.losses.relations import count_pairs
from mlcl.losses.spec import LossSpec
from mlcl.losses.weighting import Weighting, others, uniform


def any_weights(y_BL: Tensor, anchors: slice, dtype: torch.dtype) -> Weighting:
    """W_ip = 1[y_i & y_p not empty] / |P(i)|.

    A row without labels has no positives. Source: Similarity-Dissimilarity, Eq. 2 and 3.
    """
    overlap_NB = count_pairs(y_BL[anchors], y_BL).shared > 0
    return uniform(overlap_NB & others(anchors, len(y_BL), y_BL.device), dtype)


ANY = LossSpec("any", "multi_label", "Similarity-Dissimilarity, Eq. 2 and 3", any_weights)
