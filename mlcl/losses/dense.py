"""The definition of the losses: all pairs at once, N x B with autograd. The tiled engine is held equal to it.

Shapes: B candidates, N anchors (the first N rows), D embedding.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from mlcl.losses.spec import Similarity
from mlcl.losses.weighting import Weighting, others


def anchor_terms(
    z_BD: Tensor,
    anchors: slice,
    weighting: Weighting,
    tau: Tensor,
    similarity: Similarity,
    prototype_LD: Tensor | None = None,
) -> Tensor:
    """L_i = -sum_p W_ip log p_ip (+ constant_i), log p_ip = s_ip/tau - logsumexp_{a in A(i)} s_ia/tau.

    `z_BD` in float32 or float64; s is the dot product, or minus the Euclidean distance. Returns (N,).
    Prototypes are candidates of every anchor.
    An anchor without weight gets 0 and gives no gradient; a row without any candidate gets 0.
    Source: MLCL Eq. 1, Similarity-Dissimilarity Eq. 3, kNN-MLTC Eq. 2.
    """
    w_NB, rows = weighting.weights, len(z_BD)
    if prototype_LD is not None and weighting.prototypes is not None:
        w_NB = torch.cat([w_NB, weighting.prototypes], 1)
        z_BD = torch.cat([z_BD, prototype_LD])
    if len(z_BD) < 2:
        return nothing(z_BD[anchors], tau)
    term_N = (w_NB * pair_losses(z_BD, anchors, tau, similarity, rows, weighting.repulsion)).sum(1)
    return term_N if weighting.constant is None else term_N + weighting.constant


def constrained_terms(
    z_BD: Tensor, anchors: slice, tau: Tensor, similarity: Similarity, terms: Callable[[Tensor], Tensor]
) -> Tensor:
    """The anchors' terms (N,) of a loss that is defined by all pair losses (B, B) together."""
    if len(z_BD) < 2:
        return nothing(z_BD[anchors], tau)
    return terms(pair_losses(z_BD, slice(0, len(z_BD)), tau, similarity))[anchors]


def pair_losses(
    z_BD: Tensor,
    anchors: slice,
    tau: Tensor,
    similarity: Similarity,
    rows: int | None = None,
    repulsion: float = 1.0,
) -> Tensor:
    """l_ip = -log p_ip (N, B); a row with itself gets a finite number without meaning.

    `repulsion` multiplies the exponentials of the first `rows` candidates.
    """
    logit_NB = similarities(z_BD[anchors], z_BD, similarity) / tau
    candidate_NB = others(anchors, len(z_BD), z_BD.device)
    sum_NB = logit_NB.masked_fill(~candidate_NB, -torch.inf)
    if repulsion != 1:
        sum_NB = torch.cat([sum_NB[:, :rows] + math.log(repulsion), sum_NB[:, rows:]], 1)
    return sum_NB.logsumexp(1, keepdim=True) - logit_NB


def nothing(z_ND: Tensor, tau: Tensor) -> Tensor:
    """Zeros (N,), tied to the inputs, so that backward still reaches every parameter."""
    return 0 * (z_ND.sum(1) / tau)


def similarities(z_ND: Tensor, z_BD: Tensor, similarity: Similarity) -> Tensor:
    """s (N, B). The distance has subgradient 0 between identical rows, where its derivative is infinite."""
    if similarity == "dot":
        return z_ND @ z_BD.T
    # Differences, not |a|^2 + |b|^2 - 2ab, which cancels for close rows.
    return -torch.cdist(z_ND, z_BD, compute_mode="donot_use_mm_for_euclid_dist")
