"""A small convolutional image encoder with batch normalisation.

Shapes: B images, H x W pixels, D = width * 2 ** (blocks - 1).
"""

from __future__ import annotations

from itertools import pairwise
from typing import Literal

from pydantic import Field
from torch import Tensor, nn

from mlcl.config.encoder_section import EncoderConfig
from mlcl.models.encoder import Encoder


class CnnImageConfig(EncoderConfig):
    """A small convolutional image encoder."""

    name: Literal["cnn_image"]
    width: int = Field(32, ge=1, description="channels of the first block; each further block doubles it")
    blocks: int = Field(3, ge=1, le=5, description="blocks, each halving the resolution")
    image_size: int = Field(32, ge=8, description="side in pixels that images are resized to")


class CnnImage(nn.Module):
    """A network of blocks (3x3 convolution, batch norm, ReLU, 2x2 max-pool), then the mean over positions.

    Each block halves the resolution, rounded up, so that no image is too small, and has twice the channels of
    the block before. `dim` is D.
    """

    def __init__(self, width: int = 32, blocks: int = 3) -> None:
        super().__init__()
        sizes = [3, *(width * 2**block for block in range(blocks))]
        self.dim = sizes[-1]
        self.blocks = nn.Sequential(*(_build_block(a, b) for a, b in pairwise(sizes)))

    def forward(self, pixels: Tensor) -> Tensor:
        """Maps `pixels` (B, 3, H, W) float to embeddings (B, D)."""
        h_BD: Tensor = self.blocks(pixels).mean(dim=(2, 3))
        return h_BD


def _build_block(inputs: int, outputs: int) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, kernel_size=3, padding=1, bias=False),
        nn.BatchNorm2d(outputs),
        nn.ReLU(),
        nn.MaxPool2d(2, ceil_mode=True),
    )


CNN_IMAGE = Encoder(
    name="cnn_image",
    title="a small convolutional network for images",
    section=CnnImageConfig,
    modality="image",
    build=CnnImage,
    order=2,
)
