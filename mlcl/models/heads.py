"""Modules that take an encoder's output: projections before a contrastive loss, and classifiers.

Shapes: B rows, D embedding, L the encoder's own logits, O = D + L its output, K the projection's size, C
classes or labels, A aspects, H levels of a hierarchy, P = C (C - 1) / 2 pairs of classes.
"""

from __future__ import annotations

from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from mlcl.unit_rows import unit_rows


class Projection(nn.Module):
    """The projection of embeddings for a contrastive loss: z = Proj(h).

    `mlp` is W2 relu(W1 h + b1) + b2, `linear` is W h + b, `identity` is h. The attribute `dim` is K.
    Source: Similarity-Dissimilarity, appendix D (mlp); MLCL, section 3.3 (unit length).

    Args:
        kind: `mlp`, `linear` or `identity`.
        encoder_dim: The size of the embedding D.
        dim: The size of the projection K; not used by `identity`, where K is D.
        hidden: The hidden size of the mlp, by default D.
        normalize_input: Whether h is scaled to unit length first.

    Raises:
        ValueError: The kind is unknown.

    Example:
        >>> Projection("mlp", encoder_dim=16, dim=8)(torch.randn(4, 16)).shape
        torch.Size([4, 8])
    """

    def __init__(
        self,
        kind: Literal["mlp", "linear", "identity"],
        encoder_dim: int,
        dim: int = 128,
        hidden: int | None = None,
        normalize_input: bool = False,
    ) -> None:
        super().__init__()
        self.normalize_input = normalize_input
        self.dim = encoder_dim if kind == "identity" else dim
        self.network = _build_network(kind, encoder_dim, dim, hidden or encoder_dim)

    def forward(self, h_BD: Tensor) -> Tensor:
        """Maps embeddings (B, D) to z (B, K), which is not normalised."""
        z_BK: Tensor = self.network(unit_rows(h_BD) if self.normalize_input else h_BD)
        return z_BK


def _build_network(kind: str, encoder_dim: int, dim: int, hidden: int) -> nn.Module:
    if kind == "identity":
        return nn.Identity()
    if kind == "linear":
        return nn.Linear(encoder_dim, dim)
    if kind == "mlp":
        return nn.Sequential(nn.Linear(encoder_dim, hidden), nn.ReLU(), nn.Linear(hidden, dim))
    raise ValueError(f"unknown projection: {kind}")


class LinearClassifier(nn.Module):
    """A layer with logits W h + b, (B, C); with `aspects` one classifier for each of A aspects, (B, A, C)."""

    def __init__(self, encoder_dim: int, classes: int, aspects: int | None = None) -> None:
        super().__init__()
        self.shape = (classes,) if aspects is None else (aspects, classes)
        self.linear = nn.Linear(encoder_dim, classes * (aspects or 1))

    def forward(self, h_BD: Tensor) -> Tensor:
        """Maps embeddings (B, D) to logits (B, C) or (B, A, C)."""
        logits: Tensor = self.linear(h_BD)
        return logits.reshape(*h_BD.shape[:-1], *self.shape)


class WithOwnLogits(nn.Module):
    """Adds an encoder's own logits, which follow its embedding, to the logits of a layer f of the embedding.

        logits = f(embedding) + own logits, or the own logits alone without a layer f

    `dim` is D. Source: Cheng et al. 2016, Wide & Deep Learning, Eq. 3 (the sum).
    """

    def __init__(self, dim: int, layer: nn.Module | None = None) -> None:
        super().__init__()
        self.dim = dim
        self.layer = layer

    def forward(self, output_BO: Tensor) -> Tensor:
        """Maps the encoder's output (B, D + L) to logits in f's shape, or (B, L) without f."""
        own_logit_BL = output_BO[:, self.dim :]
        if self.layer is None:
            return own_logit_BL
        logits: Tensor = self.layer(output_BO[:, : self.dim])
        return logits + own_logit_BL.reshape(logits.shape)


class PrototypeClassifier(nn.Module):
    """Class prototypes whose distances follow a hierarchy: the baseline that MLCL's Table 2 calls Guided.

    Each class k has a learned point pi_k; its score is the higher the nearer the embedding h is to this
    point.

        logit_k = -d(h, pi_k),  d the Euclidean distance
        L       = cross-entropy(logits) + weight * L_disto
        L_disto = min_s mean_{k<l} ((s d(pi_k, pi_l) - D_kl) / D_kl)^2

    `forward` returns the logits and `regulariser` weight * L_disto; the caller adds the cross-entropy. Points
    are initialised uniformly in [0, 1), as in the authors' code. MLCL names neither the distance, the weight
    nor the tree that it used.

    Args:
        encoder_dim: The size of the encoder's embedding.
        distance_CC: The distances D between classes in the hierarchy: finite, symmetric, and positive between
            different classes; see `tree_distances`.
        weight: The weight of L_disto.

    Source: Landrieu and Garnot 2021, Leveraging Class Hierarchies with Metric-Guided Prototype Learning, the
    prototypical network and its metric-guided regulariser.

    Example:
        >>> classifier = PrototypeClassifier(16, tree_distances(torch.tensor([[0, 0], [0, 1], [1, 2]])))
        >>> classifier(torch.randn(4, 16)).shape
        torch.Size([4, 3])
        >>> bool(classifier.regulariser() >= 0)
        True
    """

    def __init__(self, encoder_dim: int, distance_CC: Tensor, *, weight: float = 1.0) -> None:
        super().__init__()
        self.weight = weight
        self.prototypes_CD = nn.Parameter(torch.rand(len(distance_CC), encoder_dim))
        self.distance_P: Tensor
        row_P, column_P = torch.triu_indices(len(distance_CC), len(distance_CC), 1)
        self.register_buffer("distance_P", distance_CC[row_P, column_P].to(self.prototypes_CD.dtype))

    def forward(self, h_BD: Tensor) -> Tensor:
        """Maps embeddings (B, D) to logits (B, C)."""
        # Not through a matrix product: it loses a small distance beside large norms.
        distance_BC = torch.cdist(
            h_BD.to(self.prototypes_CD.dtype), self.prototypes_CD, compute_mode="donot_use_mm_for_euclid_dist"
        )
        return -distance_BC

    def regulariser(self) -> Tensor:
        """Returns weight * L_disto, a scalar; equal on every rank."""
        return self.weight * distortion(self.prototypes_CD, self.distance_P)


def distortion(points_CD: Tensor, distance_P: Tensor) -> Tensor:
    """Returns the distortion of the distances between points against given distances, in [0, 1].

    The points are scaled by the common factor s that is best. With the ratios a_kl = d(pi_k, pi_l) / D_kl the
    mean of (s a - 1)^2 is least at s = sum a / sum a^2. `distance_P` has D_kl of the pairs k < l, row by row.
    Points that all coincide give 1.
    Source: Landrieu and Garnot 2021, the smooth and scale-free form of the distortion.
    """
    ratio_P = F.pdist(points_CD) / distance_P
    power = ratio_P.square().sum()
    scale = ratio_P.sum() / power.clamp(min=torch.finfo(power.dtype).tiny)
    return (scale * ratio_P - 1).square().mean()


def tree_distances(path_CH: Tensor) -> Tensor:
    """Returns the number of edges between the leaves of a tree (C, C) float32.

    It is 2 (H - number of levels, from the top, at which two classes are in the same group). `path_CH` has
    each class's group at every level, the coarsest first and the class itself last, as int64; -1 is an
    unknown group, which no other class shares. A root is above the coarsest level, so classes without a
    common group are 2 H apart.

    Example:
        >>> tree_distances(torch.tensor([[0, 0], [0, 1], [1, 2]])).tolist()
        [[0.0, 2.0, 4.0], [2.0, 0.0, 4.0], [4.0, 4.0, 0.0]]
    """
    shares_CC = torch.ones(len(path_CH), len(path_CH), dtype=torch.bool, device=path_CH.device)
    shared_CC = torch.zeros_like(shares_CC, dtype=torch.float32)
    for group_C in path_CH.unbind(1):
        shares_CC &= (group_C.unsqueeze(1) == group_C) & (group_C >= 0)
        shared_CC += shares_CC
    distance_CC = 2 * (path_CH.shape[1] - shared_CC)
    return distance_CC.fill_diagonal_(0)
