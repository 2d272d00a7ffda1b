"""The built-in encoders, each declared as an `Encoder`; a file has one encoder or a few similar ones."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from torch import nn

from mlcl.config.encoder_section import EncoderConfig
from mlcl.models.encoder import Encoder
from mlcl.plugins import Registry

ENCODERS = Registry("encoder", "mlcl.encoders", "mlcl.models.encoders", Encoder)


def build_encoder(section: EncoderConfig, folder: Path | None = None, **given: Any) -> nn.Module:
    """Builds the module of a job's encoder.

    Args:
        section: The section `encoder` of the job; `ENCODERS[name].section` is its class.
        folder: The folder of an exported model, whose weights the caller loads afterwards; None for other
            models.
        given: Arguments of `Encoder.build` besides the section's keys.

    Raises:
        UserError: The data set lacks something that the encoder needs, or a package, a folder or weights are
            missing.

    Example:
        >>> section = ENCODERS["cnn_image"].section(name="cnn_image", width=4, blocks=2)
        >>> build_encoder(section)(pixels=torch.randn(2, 3, 8, 8)).shape
        torch.Size([2, 8])
    """
    return ENCODERS[section.name].module(section, given, folder)
