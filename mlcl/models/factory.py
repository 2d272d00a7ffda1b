"""From the job's sections to modules: the one place where models meet the configuration."""

from __future__ import annotations

from pathlib import Path
from typing import TypeVar

from torch import Tensor, nn

from mlcl.config.encoder import (
    CnnImageConfig,
    EncoderConfig,
    LdgnConfig,
    PlmIcdConfig,
    ResNetConfig,
    TransformerConfig,
)
from mlcl.config.job import ProjectionConfig
from mlcl.errors import UserError
from mlcl.models.cnn_image import CnnImage
from mlcl.models.cnn_text import CnnText
from mlcl.models.ldgn import Ldgn
from mlcl.models.lora import Lora
from mlcl.models.plm_icd import PlmIcd
from mlcl.models.pretrained import load_pretrained, rebuild_pretrained
from mlcl.models.projection import Projection
from mlcl.models.resnet import ResNet
from mlcl.models.transformer import Transformer

T = TypeVar("T")


def build_encoder(
    config: EncoderConfig,
    vocabulary_size: int | None = None,
    labels: int | None = None,
    label_graph_LL: Tensor | None = None,
    rebuild_from: Path | None = None,
) -> nn.Module:
    """The encoder of a job, with attribute `dim`.

    Text encoders take `input_ids` and `attention_mask`, image encoders `pixels`. `vocabulary_size` is needed
    by cnn_text and ldgn, `labels` by plm_icd and `label_graph_LL` by ldgn, which give logits of labels after
    the embedding. With `rebuild_from`, a folder with the config.json of a pretrained network, no weights are
    read: the caller has all of them. Raises UserError for a missing vocabulary, package, folder or weights.
    """
    if isinstance(config, CnnImageConfig):
        return CnnImage(width=config.width, blocks=config.blocks)
    if isinstance(config, ResNetConfig):
        weights = config.weights if rebuild_from is None else None
        return ResNet(config.name, stem=config.stem, weights=weights)
    if isinstance(config, TransformerConfig):
        return Transformer(_pretrained(config, rebuild_from), config.pooling, config.max_length)
    if isinstance(config, PlmIcdConfig):
        return PlmIcd(
            _pretrained(config, rebuild_from),
            _needed(config, "labels", labels),
            chunk_length=config.chunk_length,
            pooling=config.pooling,
        )
    words = _needed(config, "a text vocabulary", vocabulary_size)
    if isinstance(config, LdgnConfig):
        return Ldgn(
            words,
            _needed(config, "label rows", label_graph_LL),
            embedding_dim=config.embedding_dim,
            width=config.width,
            graph_layers=config.graph_layers,
            dropout=config.dropout,
            pooling=config.pooling,
        )
    return CnnText(
        words,
        width=config.width,
        kernel_sizes=config.kernel_sizes,
        embedding_dim=config.embedding_dim,
        dropout=config.dropout,
    )


def _pretrained(config: TransformerConfig | PlmIcdConfig, rebuild_from: Path | None) -> nn.Module:
    given = config.lora
    lora = None if given is None else Lora(given.r, given.alpha, given.dropout, given.targets)
    if rebuild_from is not None:
        return rebuild_pretrained(rebuild_from, lora=lora, weights=config.weights)
    return load_pretrained(
        config.model,
        dropout=config.dropout,
        lora=lora,
        weights=config.weights,
        gradient_checkpointing=config.gradient_checkpointing,
    )


def _needed(config: EncoderConfig, what: str, value: T | None) -> T:
    if value is None:
        raise UserError(f"{config.name} needs a data set with {what}", key="encoder.name")
    return value


def build_projection(config: ProjectionConfig, encoder_dim: int) -> Projection:
    """The projection of one head, from the encoder's size to its own `dim`."""
    return Projection(config.kind, encoder_dim, dim=config.dim, hidden=config.hidden)
