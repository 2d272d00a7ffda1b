"""MLCL's global head: rows whose ratings are similar, weighed by how similar.

Shapes: B candidates, N anchors, A aspects.
"""

import torch
from torch import Tensor

from mlcl.losses.spec import Interval, LossSpec, Option, flag
from mlcl.losses.weighting import Weighting, others, safe_divide


def jaccard_weights(
    rating_BA: Tensor,
    anchors: slice,
    dtype: torch.dtype,
    *,
    threshold: float = 0.5,
    strict: bool = True,
) -> Weighting:
    """W_ip = s_ip 1[s_ip > t] / |P(i)|, s_ip = sum_a min(r_ia, r_pa) / sum_a max(r_ia, r_pa).

    `rating_BA` (B, A) >= 0, 0 = missing, multi-hot rows being ratings 0 and 1; s = 0 where both rows are all
    missing. `strict=False` takes s >= t, so with t = 0 every row is positive.
    Source: MLCL section 3.4, Jaccard similarity and L_gl.
    """
    s_NB = jaccard_similarity(rating_BA[anchors], rating_BA)
    positive_NB = (s_NB > threshold) if strict else (s_NB >= threshold)
    positive_NB &= others(anchors, len(rating_BA), rating_BA.device)
    positives_N = positive_NB.sum(1)
    w_NB = safe_divide(s_NB * positive_NB, positives_N.to(s_NB.dtype)[:, None])
    return Weighting(w_NB.to(dtype), positives_N)


def jaccard_similarity(rating_NA: Tensor, rating_BA: Tensor) -> Tensor:
    """s (N, B) in float64, in which a ratio such as 1/3 compares with a threshold as it does in Python.

    With t = sum_a r_ia + r_pa and d = sum_a |r_ia - r_pa|: s = (t - d) / (t + d), exact for whole ratings.
    """
    rating_NA, rating_BA = rating_NA.double(), rating_BA.double()
    total_NB = rating_NA.sum(1)[:, None] + rating_BA.sum(1)
    apart_NB = torch.cdist(rating_NA, rating_BA, p=1)
    return safe_divide(total_NB - apart_NB, total_NB + apart_NB)


JACCARD = LossSpec(
    "jaccard",
    "ratings",
    "MLCL section 3.4, L_gl",
    jaccard_weights,
    {"threshold": Option(0.5, Interval(0, 1)), "strict": flag(True)},
)
