"""ANY: the rows that share a label."""

from mlcl.losses.spec import overlap_spec
from mlcl.losses.weights.overlap import OverlapRule, sharing


def any_rule() -> OverlapRule:
    """W_ip = 1[y_i & y_p not empty] / |P(i)|.

    A row without labels has no positives. Source: Similarity-Dissimilarity, Eq. 2 and 3.
    """
    return OverlapRule(sharing, symmetric=True)


ANY = overlap_spec("any", "multi_label", "Similarity-Dissimilarity, Eq. 2 and 3", any_rule)
