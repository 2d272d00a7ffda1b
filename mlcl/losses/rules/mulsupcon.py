"""MulSupCon: one positive set for each of the anchor's labels.

Shapes: B candidates, N anchors, L labels, M stored labels.
"""

from typing import Literal

import torch
from torch import Tensor

from mlcl.losses.dense import Weighting, candidate_mask
from mlcl.losses.sets import LabelSets, cross
from mlcl.losses.spec import LossSpec
from mlcl.losses.weights.base import BatchRanks
from mlcl.losses.weights.incidence import IncidenceWeights

Normalization = Literal["paper", "paper_valid", "per_sample"]


def mulsupcon_weights(
    sets: LabelSets, anchors: slice, dtype: torch.dtype, *, normalization: Normalization = "paper"
) -> Weighting:
    """W_ip = c_i sum_{l in y_i & y_p} 1 / |P_l(i)|, P_l(i) = {p != i : l in y_p}.

    Eq. 7 divides by the number of labels in the batch, not by the number of anchors. The factor c_i puts that
    into the weights, so that the mean over all B anchors is Eq. 7 to the letter (and the sum B times it):

    - `paper`: c_i = B / sum_j |y_j|. As in Eq. 7, the divisor includes labels that no other row has.
    - `paper_valid`: c_i = B / (number of (j, l) with l in y_j and P_l(j) not empty).
    - `per_sample`: c_i = 1 / |y_i|: the mean over an anchor's labels; a label that no other row has counts 0.

    The rows of a queue count as rows j in c_i.
    Source: Similarity-Dissimilarity, Eq. 5-7 (MulSupCon, Zhang and Wu 2024).
    """
    shared = sets.drop_unique_labels()
    assert shared.rows is not None
    rows_L = torch.bincount(shared.rows.columns, minlength=shared.rows.width)
    weight_M = (1 / (rows_L - 1).to(dtype))[shared.rows.part(anchors)[0]]
    w_NB = cross(shared.rows, anchors, slice(0, len(sets)), dtype, weight_M)
    w_NB = w_NB * candidate_mask(anchors, len(sets), w_NB.device)
    factor_B = _factors(sets, shared.rows.counts(), normalization).to(dtype)
    return Weighting(w_NB * factor_B[anchors, None], (w_NB > 0).sum(1))


def mulsupcon_closed(sets: LabelSets, ranks: BatchRanks, *, normalization: Normalization) -> IncidenceWeights:
    """Returns the weights as diag(c) Y D Y^T over labels that two or more rows have, D = diag(1 / |P_l|)."""
    rows, own_rows, dtype = sets.drop_unique_labels().rows, ranks.own, ranks.dtype
    assert rows is not None
    rows_L = torch.bincount(rows.columns, minlength=rows.width).to(dtype)
    factor_B = _factors(sets, rows.counts(), normalization).to(dtype)
    value_M = (1 / (rows_L - 1))[rows.columns] * factor_B[rows.row_index()]
    value_M[rows.row_index() >= len(sets) - ranks.queued] = 0
    symmetric = normalization != "per_sample" and not ranks.queued
    row_sums_N = rows.counts()[:own_rows] * factor_B[:own_rows]
    return IncidenceWeights(rows, value_M, row_sums_N, own_rows, symmetric=symmetric)


def _factors(sets: LabelSets, valid_B: Tensor, normalization: Normalization) -> Tensor:
    """Returns the factors c_i (B,) of `mulsupcon_weights`."""
    if normalization == "per_sample":
        return 1 / sets.sizes.clamp(min=1)
    terms = sets.sizes.sum() if normalization == "paper" else valid_B.sum()
    return (len(sets) / terms.double().clamp(min=1)).expand(len(sets))


MULSUPCON = LossSpec(
    name="mulsupcon",
    labels="multi_label",
    summary="one SupCon for each label of the anchor, added up",
    source="Similarity-Dissimilarity, Eq. 5-7",
    year=2024,
    dense=mulsupcon_weights,
    closed=mulsupcon_closed,
    queue=True,
    on_host=True,
)
