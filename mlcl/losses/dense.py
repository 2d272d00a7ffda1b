"""The dense engine: computes a loss by its definition, with a matrix of all pairs' weights W and autograd.

Its memory grows with the square of the batch. The tiled engine gives the same values and gradients without
such a matrix.
Shapes: B candidates (all rows of the batch), N anchors (the first N of them), D embedding, L prototypes.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Literal

import torch
from torch import Tensor

from mlcl.labels import copy_to_device

Similarity = Literal["dot", "euclidean"]
"""The similarity s_ip of two rows: the dot product, or minus the Euclidean distance."""


@dataclass(frozen=True)
class Weighting:
    """The weights W (N, B) of the anchors' pairs, which depend on labels alone.

    They are 0 or more, and 0 for the anchor itself and for every pair that is not positive. `positives` (N,)
    are the numbers |P(i)| of the anchors' positives. `constant` (N,) is added to the anchors' terms of the
    loss, for published equations with a part that is constant in the embeddings. `prototypes` (N, L) are the
    weights of prototypes. `repulsion` multiplies the exponentials of rows, not of prototypes, in the sum of
    the softmax.
    """

    weights: Tensor
    positives: Tensor
    constant: Tensor | None = None
    prototypes: Tensor | None = None
    repulsion: float = 1.0

    @property
    def valid(self) -> Tensor:
        """Whether each anchor has a positive, which may be a row or a prototype, as bool (N,)."""
        valid_N = self.positives > 0
        return valid_N if self.prototypes is None else valid_N | (self.prototypes > 0).any(1)

    def to(self, device: torch.device) -> Weighting:
        """Returns a copy with all tensors on `device`; the host does not wait for the device."""
        tensors = {name: tensor for name, tensor in vars(self).items() if isinstance(tensor, Tensor)}
        copies: dict[str, Any] = {name: copy_to_device(tensor, device) for name, tensor in tensors.items()}
        return replace(self, **copies)


def candidate_mask(anchors: slice, count: int, device: torch.device) -> Tensor:
    """Returns the candidates A(i) of each anchor, which are all rows but i itself, as a bool mask (N, B)."""
    index_B = torch.arange(count, device=device)
    return index_B[anchors, None] != index_B


def safe_divide(top: Tensor, bottom: Tensor) -> Tensor:
    """Divides top by bottom; 0 wherever bottom is 0."""
    zero = bottom == 0
    return torch.where(zero, 0.0, top / bottom.masked_fill(zero, 1))


def ratio(part: Tensor, whole: Tensor) -> Tensor:
    """Divides part by whole, for 0 <= part <= whole; returns 0 wherever whole is 0."""
    return part / whole.clamp(min=torch.finfo(whole.dtype).tiny)


def uniform_weighting(positive_NB: Tensor, dtype: torch.dtype) -> Weighting:
    """Gives all positives of an anchor equal weights: W_ip = 1[p in P(i)] / |P(i)|."""
    positives_N = positive_NB.sum(1)
    w_NB = safe_divide(positive_NB.to(dtype), positives_N.to(dtype)[:, None])
    return Weighting(w_NB, positives_N)


def weighting_of(w_NB: Tensor, anchors: slice) -> Weighting:
    """Builds a `Weighting` from W, after setting W_ii of all anchors to 0; pairs with W > 0 are positive."""
    w_NB = w_NB * candidate_mask(anchors, w_NB.shape[1], w_NB.device)
    return Weighting(w_NB, (w_NB > 0).sum(1))


def anchor_terms(
    z_BD: Tensor,
    anchors: slice,
    weighting: Weighting,
    tau: Tensor,
    similarity: Similarity,
    prototype_LD: Tensor | None = None,
) -> Tensor:
    """Computes the anchors' terms L_i = -sum_p W_ip log p_ip (+ constant_i) of the loss.

    Here log p_ip = s_ip/tau - logsumexp_{a in A(i)} s_ia/tau.

    `z_BD` is float32 or float64; s is the dot product, or minus the Euclidean distance. Returns (N,).
    Prototypes are candidates of every anchor.
    An anchor whose weights are all 0 has L_i = constant_i and no gradient; a row without candidates has 0.
    Source: MLCL Eq. 1, Similarity-Dissimilarity Eq. 3, kNN-MLTC Eq. 2.
    """
    w_NB, rows = weighting.weights, len(z_BD)
    if prototype_LD is not None and weighting.prototypes is not None:
        w_NB = torch.cat([w_NB, weighting.prototypes], 1)
        z_BD = torch.cat([z_BD, prototype_LD])
    if len(z_BD) < 2:
        return zero_terms(z_BD[anchors], tau)
    logit_NB = similarities(z_BD[anchors], z_BD, similarity) / tau
    term_N = (w_NB * pair_losses(logit_NB, anchors, rows, weighting.repulsion)).sum(1)
    return term_N if weighting.constant is None else term_N + weighting.constant


def constrained_terms(
    z_BD: Tensor,
    anchors: slice,
    tau: Tensor,
    similarity: Similarity,
    terms: Callable[[Tensor], Tensor],
    prototype_LD: Tensor | None = None,
) -> Tensor:
    """Computes the anchors' terms (N,) of a loss that is no sum of W_ip (-log p_ip), see `LossSpec.terms`.

    `terms` returns the terms of all rows (B,) given the logits s_ip / tau (B, B + L) of all pairs.
    """
    all_CD = z_BD if prototype_LD is None else torch.cat([z_BD, prototype_LD])
    if len(all_CD) < 2:
        return zero_terms(z_BD[anchors], tau)
    return terms(similarities(z_BD, all_CD, similarity) / tau)[anchors]


def pair_losses(logit_NB: Tensor, anchors: slice, rows: int | None = None, repulsion: float = 1.0) -> Tensor:
    """Computes the losses l_ip = -log p_ip (N, B) of all pairs; that of a row with itself is meaningless.

    `repulsion` multiplies the exponentials of the first `rows` candidates in the sum of the softmax.
    """
    candidate_NB = candidate_mask(anchors, logit_NB.shape[1], logit_NB.device)
    sum_NB = logit_NB.masked_fill(~candidate_NB, -torch.inf)
    if repulsion != 1:
        sum_NB = torch.cat([sum_NB[:, :rows] + math.log(repulsion), sum_NB[:, rows:]], 1)
    return sum_NB.logsumexp(1, keepdim=True) - logit_NB


def zero_terms(z_ND: Tensor, tau: Tensor) -> Tensor:
    """Returns zeros (N,) that depend on the inputs, so that backward still reaches every parameter."""
    return 0 * (z_ND.sum(1) / tau)


def similarities(z_ND: Tensor, z_BD: Tensor, similarity: Similarity) -> Tensor:
    """Computes the similarities s (N, B); a distance has subgradient 0 between identical rows."""
    if similarity == "dot":
        return z_ND @ z_BD.T
    # Differences, not |a|^2 + |b|^2 - 2ab, which cancels for close rows.
    return -torch.cdist(z_ND, z_BD, compute_mode="donot_use_mm_for_euclid_dist")
