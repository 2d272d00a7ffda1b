"""Class prototypes whose distances follow a hierarchy: the baseline that MLCL's Table 2 calls Guided.

Shapes: B rows, D the encoder's size, C classes, H levels of a hierarchy, P = C (C - 1) / 2 pairs of classes.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class PrototypeClassifier(nn.Module):
    """A learned point pi_k for each class; a class's score is how near its point is.

        logit_k = -d(h, pi_k),  d the Euclidean distance, its square with `squared`
        L       = cross-entropy(logits) + weight * L_disto
        L_disto = min_s mean_{k<l} ((s d(pi_k, pi_l) - D_kl) / D_kl)^2

    `forward` gives the logits, `regulariser` weight * L_disto; the cross-entropy is the caller's.
    `distance_CC` is D: finite, symmetric, above 0 between classes. Where the logits take the square, L_disto
    still takes the distance.

    As in the authors' code: the plain distance, weight 1, points that start uniform in [0, 1). The distances
    come from the hierarchy by `tree_distances`. MLCL names neither the distance, the weight nor the tree that
    it used.

    Raises ValueError for another matrix.
    Source: Landrieu and Garnot 2021, Leveraging Class Hierarchies with Metric-Guided Prototype Learning, the
    prototypical network and its metric-guided regulariser.
    """

    def __init__(
        self, encoder_dim: int, distance_CC: Tensor, *, weight: float = 1.0, squared: bool = False
    ) -> None:
        super().__init__()
        self.weight = weight
        self.squared = squared
        self.prototypes_CD = nn.Parameter(torch.rand(len(distance_CC), encoder_dim))
        self.distance_P: Tensor
        self.register_buffer("distance_P", _pairs(distance_CC).to(self.prototypes_CD.dtype))

    def forward(self, h_BD: Tensor) -> Tensor:
        """Embeddings (B, D) to logits (B, C)."""
        # Not through a matrix product: it loses a small distance beside large norms.
        distance_BC = torch.cdist(
            h_BD.to(self.prototypes_CD.dtype), self.prototypes_CD, compute_mode="donot_use_mm_for_euclid_dist"
        )
        return -distance_BC.square() if self.squared else -distance_BC

    def regulariser(self) -> Tensor:
        """weight * L_disto, a scalar; the same on every rank."""
        return self.weight * distortion(self.prototypes_CD, self.distance_P)


def distortion(points_CD: Tensor, distance_P: Tensor) -> Tensor:
    """How far the distances of points are from given ones at the best common scale: a scalar in [0, 1].

    With the ratios a_kl = d(pi_k, pi_l) / D_kl the mean of (s a - 1)^2 is least at s = sum a / sum a^2.
    `distance_P` holds D_kl of the pairs k < l, row by row. Points that all coincide give 1.
    Source: Landrieu and Garnot 2021, the smooth and scale-free form of the distortion.
    """
    ratio_P = F.pdist(points_CD) / distance_P
    power = ratio_P.square().sum()
    scale = ratio_P.sum() / power.clamp(min=torch.finfo(power.dtype).tiny)
    return (scale * ratio_P - 1).square().mean()


def tree_distances(path_CH: Tensor) -> Tensor:
    """Edges between the leaves of a tree: 2 (H - levels that two classes share from the top), (C, C) float32.

    `path_CH` has each class's groups, coarse first, the class itself last; int64, -1 unknown, which no
    other class shares. All trees have one root above the coarsest level: classes without a common group are
    2 H apart.
    """
    shares_CC = torch.ones(len(path_CH), len(path_CH), dtype=torch.bool, device=path_CH.device)
    shared_CC = torch.zeros_like(shares_CC, dtype=torch.float32)
    for group_C in path_CH.unbind(1):
        shares_CC &= (group_C.unsqueeze(1) == group_C) & (group_C >= 0)
        shared_CC += shares_CC
    distance_CC = 2 * (path_CH.shape[1] - shared_CC)
    return distance_CC.fill_diagonal_(0)


def _pairs(distance_CC: Tensor) -> Tensor:
    """The entries above the diagonal, row by row, as `pdist` orders them."""
    if distance_CC.dim() != 2 or distance_CC.shape[0] != distance_CC.shape[1] or len(distance_CC) < 2:
        raise ValueError(f"distances must be a square matrix of 2 classes or more; found {distance_CC.shape}")
    row_P, column_P = torch.triu_indices(len(distance_CC), len(distance_CC), 1, device=distance_CC.device)
    distance_P = distance_CC[row_P, column_P]
    if not torch.equal(distance_P, distance_CC[column_P, row_P]):
        raise ValueError("distances must be symmetric")
    if not (torch.isfinite(distance_P) & (distance_P > 0)).all():
        raise ValueError("distances between different classes must be finite and above 0")
    return distance_P
