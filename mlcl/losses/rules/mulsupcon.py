"""MulSupCon: one positive set for each of the anchor's labels. Shapes: B candidates, N anchors, L labels."""

from typing import Literal

import torch
from torch import Tensor

from mlcl.losses.spec import LossSpec, choice
from mlcl.losses.weighting import Weighting, others, safe_divide

Normalization = Literal["paper", "paper_valid", "per_sample"]


def mulsupcon_weights(
    y_BL: Tensor, anchors: slice, dtype: torch.dtype, *, normalization: Normalization = "paper"
) -> Weighting:
    """W_ip = c_i sum_{l in y_i & y_p} 1 / |P_l(i)|, P_l(i) = {p != i : l in y_p}.

    Eq. 7 divides by the number of labels in the batch, not by the number of anchors. The factor c_i puts that
    into the weights, so that the mean over all B anchors is Eq. 7 to the letter (and the sum B times it):

    - `paper`: c_i = B / sum_j |y_j|. Labels that no other row has count in the divisor, as printed.
    - `paper_valid`: c_i = B / (number of (j, l) with l in y_j and P_l(j) not empty).
    - `per_sample`: c_i = 1 / |y_i|: every anchor weighs the same, rows without labels included.

    Source: Similarity-Dissimilarity, Eq. 5-7 (MulSupCon, Zhang and Wu 2024).
    """
    rows_L = y_BL.sum(0)
    w_NB = (y_BL[anchors] / (rows_L - 1).clamp(min=1)) @ y_BL.T
    w_NB = w_NB * others(anchors, len(y_BL), y_BL.device)
    positives_N = (w_NB > 0).sum(1)
    if normalization == "per_sample":
        w_NB = safe_divide(w_NB, y_BL[anchors].sum(1)[:, None])
    else:
        terms = rows_L.sum() if normalization == "paper" else rows_L[rows_L > 1].sum()
        w_NB = w_NB * (len(y_BL) / terms.clamp(min=1))
    return Weighting(w_NB.to(dtype), positives_N)


MULSUPCON = LossSpec(
    "mulsupcon",
    "multi_label",
    "Similarity-Dissimilarity, Eq. 5-7",
    mulsupcon_weights,
    {"normalization": choice("paper", "paper_valid", "per_sample")},
)
