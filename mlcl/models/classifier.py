"""The linear classifier on an embedding.

Shapes: B rows, D the encoder's size, C classes or labels, A aspects.
"""

from __future__ import annotations

from torch import Tensor, nn


class Classifier(nn.Module):
    """Logits W h + b: (B, C), or (B, A, C) where `aspects` asks for one classifier an aspect."""

    def __init__(self, encoder_dim: int, classes: int, aspects: int | None = None) -> None:
        super().__init__()
        self.shape = (classes,) if aspects is None else (aspects, classes)
        self.linear = nn.Linear(encoder_dim, classes * (aspects or 1))

    def forward(self, h_BD: Tensor) -> Tensor:
        """Embeddings (B, D) to logits (B, C) or (B, A, C)."""
        logits: Tensor = self.linear(h_BD)
        return logits.reshape(*h_BD.shape[:-1], *self.shape)
