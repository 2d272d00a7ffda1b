"""MSC: rows attract by the labels they share, frequent labels less; labels may have learned prototypes."""

from __future__ import annotations

from typing import Annotated

import torch
from torch import Tensor

from mlcl.losses.dense import Weighting
from mlcl.losses.relations import LabelCounts
from mlcl.losses.sets import LabelSets
from mlcl.losses.spec import Interval, LossSpec
from mlcl.losses.weights.base import BatchRanks
from mlcl.losses.weights.label_shares import LabelShares, Nearness, label_shares

Above0 = Annotated[float, Interval(0, open_low=True)]


def _near(alpha: float) -> Nearness:
    def per_union(counts: LabelCounts) -> Tensor:
        return alpha / counts.union.clamp(min=1)

    return per_union


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
    of an anchor that has labels add up to 1. |y_i or y_p| is the size of the union, and [prototypes] is 1
    with prototypes, else 0. Prototypes are candidates of every anchor; `beta` multiplies the exponentials of
    rows, not of prototypes, in the softmax's sum and nowhere else.
    Source: MSC (Audibert et al. 2024), in the form of its published code.
    """
    return label_shares(_near(alpha), sets, anchors, dtype, prototypes=prototypes, repulsion=float(beta))


def msc_closed(
    sets: LabelSets,
    ranks: BatchRanks,
    *,
    prototypes: bool,
    alpha: Above0 = 1.0,
    beta: Above0 = 1.0,
) -> LabelShares:
    """Returns the closed form of the weights, over distinct label sets."""
    return LabelShares(_near(alpha), sets, ranks, prototypes=prototypes, repulsion=float(beta))


MSC = LossSpec(
    name="msc",
    labels="multi_label",
    summary="rows attract by shared labels, rare ones more; every label has a learned prototype",
    source="MSC (Audibert et al. 2024)",
    year=2024,
    dense=msc_weights,
    closed=msc_closed,
    prototypes=True,
    queue=True,
    on_host=True,
)
