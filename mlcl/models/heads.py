"""What reads an encoder's output: the projection before a contrastive loss, and the linear classifier.

Shapes: B rows, D embedding, L the encoder's own logits, O = D + L its output, P the projection's size,
C classes or labels, A aspects.
"""

from __future__ import annotations

from typing import Literal

from torch import Tensor, nn

from mlcl.unit_rows import unit_rows


class Projection(nn.Module):
    """z = Proj(h): `mlp` is W2 relu(W1 h + b1) + b2, `linear` is W h + b, `identity` is h.

    `hidden` is the mlp's hidden size, by default the encoder's. `dim` is P, for identity the encoder's. With
    `normalize_input` h is scaled to unit length first (MLCL, section 3.3).
    Source: Similarity-Dissimilarity, appendix D (mlp).
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
        self.network = _network(kind, encoder_dim, dim, hidden or encoder_dim)

    def forward(self, h_BD: Tensor) -> Tensor:
        """Embeddings (B, D) to (B, P); z is not normalised."""
        z_BP: Tensor = self.network(unit_rows(h_BD) if self.normalize_input else h_BD)
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


class WithOwnLogits(nn.Module):
    """Logits from the output of an encoder whose own logits follow its embedding.

        logits = f(embedding) + own logits, or the own logits alone without a layer f

    `dim` is D. Source: Cheng et al. 2016, Wide & Deep Learning, Eq. 3 (the sum).
    """

    def __init__(self, dim: int, layer: nn.Module | None = None) -> None:
        super().__init__()
        self.dim = dim
        self.layer = layer

    def forward(self, output_BO: Tensor) -> Tensor:
        """The encoder's output (B, D + L) to logits of f's shape, or (B, L)."""
        own_BL = output_BO[:, self.dim :]
        if self.layer is None:
            return own_BL
        logits: Tensor = self.layer(output_BO[:, : self.dim])
        return logits + own_BL.reshape(logits.shape)
