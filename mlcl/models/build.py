"""From the job's sections to modules: the one place where models meet the configuration."""

from __future__ import annotations

from torch import nn

from mlcl.config.job import CnnImageConfig, CnnTextConfig, EncoderConfig, ProjectionConfig, ResNetConfig
from mlcl.errors import UserError
from mlcl.models.cnn_image import CnnImage
from mlcl.models.cnn_text import CnnText
from mlcl.models.projection import Projection
from mlcl.models.resnet import ResNet
from mlcl.models.transformer import Transformer


def build_encoder(config: EncoderConfig, vocabulary_size: int | None = None) -> nn.Module:
    """The encoder of a job, with attribute `dim`.

    Text encoders take `input_ids` and `attention_mask`, image encoders `pixels`. `vocabulary_size` is needed
    by cnn_text alone. Raises UserError for a missing vocabulary, package, folder or weight file.
    """
    if isinstance(config, CnnTextConfig):
        if vocabulary_size is None:
            raise UserError("cnn_text needs a data set with a text vocabulary", key="encoder.name")
        return CnnText(
            vocabulary_size,
            width=config.width,
            kernel_sizes=config.kernel_sizes,
            embedding_dim=config.embedding_dim,
            dropout=config.dropout,
        )
    if isinstance(config, CnnImageConfig):
        return CnnImage(width=config.width, blocks=config.blocks)
    if isinstance(config, ResNetConfig):
        return ResNet(config.name, stem=config.stem, weights=config.weights)
    return Transformer(config.model, pooling=config.pooling)


def build_projection(config: ProjectionConfig, encoder_dim: int) -> Projection:
    """The projection of one head, from the encoder's size to its own `dim`."""
    return Projection(config.kind, encoder_dim, dim=config.dim, hidden=config.hidden)
