"""MSC: rows attract by the labels they share, frequent labels less; labels may have learned prototypes."""

from __future__ import annotations

from typing import Annotated

from torch import Tensor

from mlcl.losses.relations import LabelCounts
from mlcl.losses.spec import Interval, overlap_loss
from mlcl.losses.weights.label_shares import LabelShareRule

Above0 = Annotated[float, Interval(0, open_low=True)]


def msc_rule(*, prototypes: bool, alpha: Above0 = 1.0, beta: Above0 = 1.0) -> LabelShareRule:
    """W_ip = alpha / (|y_i| |y_i or y_p|) sum_{l in y_i & y_p} 1 / N_il; 1 / (|y_i| N_il) for prototype l.

    N_il = [prototypes] + alpha sum_{p != i, l in y_p} 1 / |y_i or y_p|, so that with prototypes the weights
    of an anchor that has labels add up to 1. |y_i or y_p| is the size of the union, and [prototypes] is 1
    with prototypes, else 0. Prototypes are candidates of every anchor; `beta` multiplies the exponentials of
    rows, not of prototypes, in the softmax's sum and nowhere else.

    Source: MSC (Audibert et al. 2024), in the form of its published code.
    """

    def share_of_union(counts: LabelCounts) -> Tensor:
        return alpha / counts.union.clamp(min=1)

    return LabelShareRule(share_of_union, prototypes, float(beta))


MSC = overlap_loss(
    "msc",
    msc_rule,
    summary="rows attract by shared labels, rare ones more; every label has a learned prototype",
    source="MSC (Audibert et al. 2024)",
    year=2024,
    prototypes=True,
)
