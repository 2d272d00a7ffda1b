"""JSCL: every row attracts by the Jaccard similarity of its label set."""

from typing import Literal

from torch import Tensor

from mlcl.losses.dense import ratio
from mlcl.losses.relations import LabelCounts
from mlcl.losses.spec import overlap_loss
from mlcl.losses.weights.overlap import Normalizer, OverlapRule

NORMALIZERS: dict[str, Normalizer] = {"candidates": "candidates", "similarities": "factors"}


def jscl_rule(*, normalizer: Literal["candidates", "similarities"] = "candidates") -> OverlapRule:
    """W_ip = J_ip / |A(i)|, J = |S & T| / |S or T|, 0 where both are empty.

    J is the size of the label sets' intersection divided by the size of their union, A(i) all rows but i.
    `normalizer="similarities"` divides by sum_p J_ip, so that an anchor's weights add up to 1 (the base loss
    of Audibert et al. 2024). On the logits of a classifier in place of an embedding this is JSPCL.
    Source: CL-MTC (Lin et al. 2023), JSCL, according to its equation. The published code has J in the
    softmax's sum instead, with every row positive, which repels similar rows.
    """

    def jaccard_similarity(counts: LabelCounts) -> tuple[Tensor, Tensor]:
        return counts.shared > 0, ratio(counts.shared, counts.union)

    return OverlapRule(jaccard_similarity, normalizer=NORMALIZERS[normalizer], symmetric=True)


JSCL = overlap_loss(
    "jscl",
    jscl_rule,
    summary="rows attract by the Jaccard similarity of their label sets",
    source="CL-MTC (Lin et al. 2023), JSCL",
    year=2023,
)
