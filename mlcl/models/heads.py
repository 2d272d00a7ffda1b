"""What reads an embedding: the projection before a contrastive loss, and the linear classifier.

Shapes: B rows, D the encoder's size, P the projection's, C classes or labels, A aspects.
"""

from __future__ import annotations

from typing import Literal

from torch import Tensor, nn


class Projection(nn.Module):
    """z = Proj(h): `mlp` is W2 relu(W1 h + b1) + b2, `linear` is W h + b, `identity` is h.

    `hidden` is the mlp's hidden size, by default the encoder's. `dim` is P, for identity the encoder's.
    Source: Similarity-Dissimilarity, appendix D (mlp).
    """

    def __init__(
        self,
        kind: Literal["mlp", "linear", "identity"],
        encoder_dim: int,
        dim: int = 128,
        hidden: int | None = None,
    ) -> None:
        super().__init__()
        self.dim = encoder_dim if kind == "identity" else dim
        self.network = _network(kind, encoder_dim, dim, hidden or encoder_dim)

    def forward(self, h_BD: Tensor) -> Tensor:
        """Embeddings (B, D) to (B, P); not normalised."""
        z_BP: Tensor = self.network(h_BD)
        return z_BP


def _network(kind: str, encoder_dim: int, dim: int, hidden: int) -> nn.Module:
    if kind == "identity":
        return nn.Identity()
    if kind == "linear":
        return nn.Linear(encoder_dim, dim)
    if kind == "mlp":
        return nn.Sequential(nn.Linear(encoder_dim, hidden), nn.ReLU(), nn.Linear(hidden, dim))
    raise ValueError(f"unknown projection: {kind}")


class LinearClassifier(nn.Module):
    """Logits W h + b: (B, C), or (B, A, C) where `aspects` asks for one classifier an aspect."""

    def __init__(self, encoder_dim: int, classes: int, aspects: int | None = None) -> None:
        super().__init__()
        self.shape = (classes,) if aspects is None else (aspects, classes)
        self.linear = nn.Linear(encoder_dim, classes * (aspects or 1))

    def forward(self, h_BD: Tensor) -> Tensor:
        """Embeddings (B, D) to logits (B, C) or (B, A, C)."""
        logits: Tensor = self.linear(h_BD)
        return logits.reshape(*h_BD.shape[:-1], *self.shape)
