"""The global head of MLCL: rows with similar ratings attract, weighted by their similarity."""

from typing import Annotated

from torch import Tensor

from mlcl.losses.dense import ratio
from mlcl.losses.relations import LabelCounts
from mlcl.losses.spec import Interval, overlap_loss
from mlcl.losses.weights.overlap import OverlapRule


def jaccard_rule(*, threshold: Annotated[float, Interval(0, 1)] = 0.5, strict: bool = True) -> OverlapRule:
    """W_ip = s_ip 1[s_ip > t] / |P(i)|, s_ip = sum_a min(r_ia, r_pa) / sum_a max(r_ia, r_pa).

    Labels are ratings r (B, A) >= 0, where 0 is missing; label sets are ratings of 0 and 1. s = 0 if both
    rows have no ratings. `strict=False` replaces s > t by s >= t, so with t = 0 every row is positive.
    Source: MLCL section 3.4, Jaccard similarity and L_gl.
    """

    def similarity_above_threshold(counts: LabelCounts) -> tuple[Tensor, Tensor]:
        # float64 makes a ratio such as 1/3 compare with a threshold as it does in Python.
        s = ratio(counts.shared.double(), counts.union.double())
        positive = s > threshold if strict else s >= threshold
        return positive, s * positive

    return OverlapRule(similarity_above_threshold, symmetric=True)


JACCARD = overlap_loss(
    "jaccard",
    jaccard_rule,
    labels="ratings",
    summary="rows with similar ratings attract by how similar they are",
    source="MLCL section 3.4, L_gl",
    year=2025,
)
