"""The vectors that a frozen encoder has for each label of a text, and the layer that reads them.

Shapes: n rows of a rank, b rows that are read, L labels, D embedding.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor, nn

from mlcl.training.batches import Rows
from mlcl.training.embeddings import SplitEncoder

NUMBERS_KEPT = 2**29
"""The most numbers of label vectors that are kept on the device; beyond it they are computed when read."""


def label_layer(encoder: nn.Module) -> nn.Linear | None:
    """Returns the encoder's own layer on label vectors; None for an encoder without one."""
    layer = getattr(encoder, "label_layer", None)
    assert layer is None or isinstance(layer, nn.Linear)
    return layer


@dataclass(frozen=True)
class LabelVectors:
    """The label vectors of consecutive rows, which `range` counts in `rows`: features of a linear probe.

    Vectors of few labels and rows are kept. Others are computed anew by each reading, since those of 50,000
    texts and 8,000 labels would fill 1 TB. They are float32 on the encoder's device, without a gradient.
    """

    encoder: SplitEncoder
    rows: Rows
    range: range

    @property
    def shape(self) -> tuple[int, int, int]:
        """(n, L, D)"""
        layer = label_layer(self.encoder.encoder)
        assert layer is not None
        return (len(self.range), layer.out_features, layer.in_features)

    @property
    def device(self) -> torch.device:
        """The encoder's device."""
        return self.encoder.context.device

    def __getitem__(self, rows_b: Tensor, /) -> Tensor:
        """Returns the label vectors (b, L, D) of the rows with these numbers, counted from 0."""
        n, labels, dim = self.shape
        if n * labels * dim <= NUMBERS_KEPT:
            return self._kept[rows_b.to(self.device)]
        return self._encoded(rows_b)

    @cached_property
    def _kept(self) -> Tensor:
        return self._encoded(torch.arange(len(self.range)))

    def _encoded(self, rows_b: Tensor) -> Tensor:
        numbers = torch.split(rows_b + self.range.start, self.encoder.batch_size)
        return torch.cat([self.encoder.label_vectors(self.rows, part) for part in numbers])
