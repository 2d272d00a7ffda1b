"""Encoders: each module here declares one, or a few of a kind, as a value of `Encoder`."""

from __future__ import annotations

from pathlib import Path

from torch import Tensor, nn

from mlcl.config.encoder_section import EncoderConfig
from mlcl.models.encoder import Encoder
from mlcl.plugins import Registry

ENCODERS = Registry("encoder", "mlcl.encoders", "mlcl.models.encoders", Encoder)


def build_encoder(
    section: EncoderConfig,
    *,
    vocabulary_size: int | None = None,
    labels: int | None = None,
    label_graph_LL: Tensor | None = None,
    folder: Path | None = None,
) -> nn.Module:
    """The module of a job's encoder; `Encoder` says what the arguments are.

    Raises UserError for what the data set does not give, and for a missing package, folder or weights.
    """
    given = {
        "vocabulary_size": vocabulary_size,
        "labels": labels,
        "label_graph_LL": label_graph_LL,
        "folder": folder,
    }
    return ENCODERS[section.name].module(section, given)
