"""ANY: rows that share a label attract."""

from mlcl.losses.spec import overlap_loss
from mlcl.losses.weights.overlap import OverlapRule, share_label


def any_rule() -> OverlapRule:
    """W_ip = 1[y_i & y_p not empty] / |P(i)|.

    A row without labels has no positives. Source: Similarity-Dissimilarity, Eq. 2 and 3.
    """
    return OverlapRule(share_label, symmetric=True)


ANY = overlap_loss(
    "any",
    any_rule,
    summary="rows that share a label attract, all alike",
    source="Similarity-Dissimilarity, Eq. 2 and 3",
    year=2024,
)
