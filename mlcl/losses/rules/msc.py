"""MSC: shared labels attract, each the less the more rows have it; every label has a learned prototype.

Shapes: B rows, N anchors, L labels.
"""

from typing import Annotated

import torch

from mlcl.losses.options import Interval
from mlcl.losses.sets import LabelSets
from mlcl.losses.spec import LossSpec
from mlcl.losses.weighting import Weighting, others, safe_divide
from mlcl.losses.weights.base import Ranks
from mlcl.losses.weights.prototypes import MscWeights

Above0 = Annotated[float, Interval(0, open_low=True)]


def msc_weights(
    sets: LabelSets,
    anchors: slice,
    dtype: torch.dtype,
    *,
    prototypes: bool,
    alpha: Above0 = 1.0,
    beta: Above0 = 1.0,
) -> Weighting:
    """W_ip = alpha / (|y_i| |y_i or y_p|) sum_{l in y_i & y_p} 1 / N_il; 1 / (|y_i| N_il) for prototype l.

    N_il = [prototypes] + alpha sum_{p != i, l in y_p} 1 / |y_i or y_p|, so that with prototypes the weights
    of an anchor that has labels add up to 1. Prototypes are candidates of every anchor; `beta` multiplies the
    exponentials of rows, not of prototypes, in the softmax's sum and nowhere else.
    Source: MSC (Audibert et al. 2024), in the form that its published code has.
    """
    assert sets.rows is not None
    y_BL = sets.rows.dense(dtype)
    y_NL, size_N1 = y_BL[anchors], y_BL[anchors].sum(1, keepdim=True)
    union_NB = size_N1 + y_BL.sum(1) - y_NL @ y_BL.T
    near_NB = alpha * others(anchors, len(sets), y_BL.device) / union_NB.clamp(min=1)
    inverse_NL = safe_divide(y_NL, (near_NB @ y_BL + int(prototypes)) * size_N1)
    w_NB = near_NB * (inverse_NL @ y_BL.T)
    return Weighting(
        w_NB, (w_NB > 0).sum(1), prototypes=inverse_NL if prototypes else None, repulsion=float(beta)
    )


def msc_closed(
    sets: LabelSets,
    own: int,
    ranks: Ranks,
    dtype: torch.dtype,
    *,
    prototypes: bool,
    alpha: Above0 = 1.0,
    beta: Above0 = 1.0,
) -> MscWeights:
    """The same over distinct label sets."""
    return MscWeights(sets, own, ranks.device, dtype, alpha, prototypes, repulsion=beta)


MSC = LossSpec(
    name="msc",
    labels="multi_label",
    summary="rows attract by shared labels, rare ones more; every label has a learned prototype",
    source="MSC (Audibert et al. 2024)",
    dense=msc_weights,
    closed=msc_closed,
    prototypes=True,
    on_host=True,
)
