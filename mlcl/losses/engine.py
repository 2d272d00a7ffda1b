"""From embeddings and weights to one loss term an anchor: the dense definition, N x B with autograd.

Shapes: B candidates, N anchors (rows `anchors` of the candidates), D embedding.
"""

from __future__ import annotations

import torch
from torch import Tensor

from mlcl.losses.spec import Similarity
from mlcl.losses.weighting import Weighting, others


def anchor_terms(
    z_BD: Tensor, anchors: slice, weighting: Weighting, tau: Tensor, similarity: Similarity
) -> Tensor:
    """L_i = -sum_p W_ip log p_ip (+ constant_i), log p_ip = s_ip/tau - logsumexp_{a in A(i)} s_ia/tau.

    `z_BD` in float32 or float64; s is the dot product, or minus the Euclidean distance. Returns (N,).
    An anchor without weight gets 0 and gives no gradient; a batch of one row gets 0, since A(i) is empty.
    Source: MLCL Eq. 1, Similarity-Dissimilarity Eq. 3, kNN-MLTC Eq. 2.
    """
    z_ND = z_BD[anchors]
    if len(z_BD) < 2:
        # Tied to the inputs, so that backward still reaches every parameter.
        return 0 * (z_ND.sum(1) / tau)
    logit_NB = similarities(z_ND, z_BD, similarity) / tau
    candidate_NB = others(anchors, len(z_BD), z_BD.device)
    lse_N1 = logit_NB.masked_fill(~candidate_NB, -torch.inf).logsumexp(1, keepdim=True)
    term_N = (weighting.weights * (lse_N1 - logit_NB)).sum(1)
    return term_N if weighting.constant is None else term_N + weighting.constant


def similarities(z_ND: Tensor, z_BD: Tensor, similarity: Similarity) -> Tensor:
    """s (N, B). The distance has subgradient 0 between identical rows, where its derivative is infinite."""
    if similarity == "dot":
        return z_ND @ z_BD.T
    # Differences, not |a|^2 + |b|^2 - 2ab, which cancels for close rows.
    return -torch.cdist(z_ND, z_BD, compute_mode="donot_use_mm_for_euclid_dist")
