"""Encoders: each module here declares one, or a few of a kind, as a value of `Encoder`."""

from __future__ import annotations

from typing import Any

from torch import nn

from mlcl.config.encoder_section import EncoderConfig
from mlcl.models.encoder import Encoder
from mlcl.plugins import Registry

ENCODERS = Registry("encoder", "mlcl.encoders", "mlcl.models.encoders", Encoder)


def build_encoder(section: EncoderConfig, **given: Any) -> nn.Module:
    """The module of a job's encoder; `given` are what `Encoder.build` may ask for besides the section's keys.

    Raises UserError for what the data set does not give, and for a missing package, folder or weights.
    """
    return ENCODERS[section.name].module(section, {"folder": None, **given})
