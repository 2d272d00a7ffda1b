"""kNN-MLTC: the more labels two rows share, the more they attract.

Shapes: B candidates, N anchors, L labels.
"""

import torch
from torch import Tensor

from mlcl.losses.relations import count_pairs
from mlcl.losses.spec import LossSpec, flag
from mlcl.losses.weighting import Weighting, others, safe_divide


def knn_weights(y_BL: Tensor, anchors: slice, dtype: torch.dtype, *, dynamic: bool = True) -> Weighting:
    """W_ip = beta_ip = C_ip / sum_{k != i} C_ik, C_ip = y_i . y_p; 0 where no label is shared.

    `dynamic=False` sets every C above 1 to 1: the ablation without beta of Table 5.
    The similarity is minus the Euclidean distance. Source: kNN-MLTC Eq. 2 and 3.
    """
    shared_NB = count_pairs(y_BL[anchors], y_BL).shared * others(anchors, len(y_BL), y_BL.device)
    if not dynamic:
        shared_NB = shared_NB.clamp(max=1)
    beta_NB = safe_divide(shared_NB, shared_NB.sum(1)[:, None])
    return Weighting(beta_NB.to(dtype), (shared_NB > 0).sum(1))


KNN = LossSpec(
    "knn",
    "multi_label",
    "kNN-MLTC Eq. 2 and 3",
    knn_weights,
    {"dynamic": flag(True)},
    similarity="euclidean",
)
