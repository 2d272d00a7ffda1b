"""Batches of an encoded split: inputs, labels and sample ids of some rows, and their views.

Shapes: B samples, V views, R = V * B rows, view after view.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from mlcl.config import AugmentConfig
from mlcl.data import ImageRows, TokenRows, augment, normalise
from mlcl.labels import LabelRows
from mlcl.training.classifier import Labels
from mlcl.training.feature_rows import FeatureRows


@dataclass(frozen=True)
class Batch:
    """One batch on the device: R rows."""

    inputs: Mapping[str, Tensor]
    labels: Mapping[str, Labels]
    sample_ids: Tensor

    def __len__(self) -> int:
        return len(self.sample_ids)


@dataclass(frozen=True)
class Rows:
    """A split, encoded: its inputs, labels by head name and `classifier`, and a global id for each row."""

    inputs: TokenRows | ImageRows | FeatureRows
    labels: Mapping[str, Labels]
    sample_ids: Tensor
    augment: AugmentConfig

    def __len__(self) -> int:
        return len(self.sample_ids)

    def batch(self, indices_B: Tensor, views: int, device: torch.device) -> Batch:
        """`views` views of each row. Images are augmented on the device; others differ by dropout."""
        rows = {
            key: value.to(device, non_blocking=True) for key, value in self.inputs.batch(indices_B).items()
        }
        inputs = rows
        if views > 1:
            inputs = {key: value.repeat(views, *[1] * (value.ndim - 1)) for key, value in rows.items()}
        if "pixels" in inputs:
            inputs["pixels"] = self._augmented(inputs["pixels"])
        indices_R = indices_B.repeat(views)
        labels = {name: _take(space, indices_R).to(device) for name, space in self.labels.items()}
        return Batch(inputs, labels, self.sample_ids[indices_R].to(device))

    def plain(self, indices_B: Tensor, device: torch.device) -> Mapping[str, Tensor]:
        """The inputs without augmentation, for evaluation."""
        inputs = {
            key: value.to(device, non_blocking=True) for key, value in self.inputs.batch(indices_B).items()
        }
        if "pixels" in inputs:
            inputs["pixels"] = normalise(inputs["pixels"])
        return inputs

    def _augmented(self, pixels: Tensor) -> Tensor:
        how = self.augment
        return augment(pixels, crop=how.crop, flip=how.flip, jitter=how.jitter, grayscale=how.grayscale)


def _take(labels: Labels, indices: Tensor) -> Labels:
    return labels.take(indices) if isinstance(labels, LabelRows) else labels[indices]


def label_statistics(labels: Mapping[str, Labels]) -> dict[str, str]:
    """One line for each label space, for the message of a diverged loss."""
    lines = {}
    for name, space in labels.items():
        if isinstance(space, LabelRows):
            counts = space.counts()
            lines[name] = f"{int(counts.sum())} labels on {len(space)} rows, {int((counts == 0).sum())} empty"
        else:
            lines[name] = f"{len(torch.unique(space))} distinct values on {len(space)} rows"
    return lines
