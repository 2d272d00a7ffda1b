"""Batches of an encoded split: inputs, labels and sample ids of some rows, and their views.

Shapes: B samples, V views, R = V * B rows, view after view.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from mlcl.config import AugmentConfig
from mlcl.data import ImageRows, TokenRows, augment, normalise
from mlcl.labels import LabelRows
from mlcl.training.classifier import Labels
from mlcl.training.features.inputs import FeatureRows
from mlcl.training.prefetch import read_ahead


@dataclass(frozen=True)
class Batch:
    """One batch: R rows, with inputs on the device, and labels and sample ids in the host's memory."""

    inputs: Mapping[str, Tensor]
    labels: Mapping[str, Labels]
    sample_ids: Tensor

    def __len__(self) -> int:
        return len(self.sample_ids)


@dataclass(frozen=True)
class Rows:
    """A split, encoded: its inputs, labels by head name and `classifier`, and a global id for each row.

    With `compile` the augmentation is compiled.
    """

    inputs: TokenRows | ImageRows | FeatureRows
    labels: Mapping[str, Labels]
    sample_ids: Tensor
    augment: AugmentConfig
    compile: bool = False

    def __len__(self) -> int:
        return len(self.sample_ids)

    def batch(self, indices_B: Tensor, views: int, device: torch.device) -> Batch:
        """One of `batches`."""
        return next(self.batches([indices_B], views, device))

    def batches(self, indices: Iterable[Tensor], views: int, device: torch.device) -> Iterator[Batch]:
        """`views` views of each row. Images are augmented on the device; others differ by dropout."""
        for indices_B, inputs in read_ahead(indices, self.inputs.batch, device):
            yield self._of_views(indices_B, dict(inputs), views)

    def _of_views(self, indices_B: Tensor, inputs: dict[str, Tensor], views: int) -> Batch:
        if views > 1:
            inputs = {key: value.repeat(views, *[1] * (value.ndim - 1)) for key, value in inputs.items()}
        if "pixels" in inputs:
            inputs["pixels"] = self._augmented(inputs["pixels"])
        indices_R = indices_B.repeat(views)
        labels = {name: _take(space, indices_R) for name, space in self.labels.items()}
        return Batch(inputs, labels, self.sample_ids[indices_R])

    def plain(self, indices_B: Tensor, device: torch.device) -> Mapping[str, Tensor]:
        """The inputs without augmentation, for evaluation."""
        inputs = {
            key: value.to(device, non_blocking=True) for key, value in self.inputs.batch(indices_B).items()
        }
        if "pixels" in inputs:
            inputs["pixels"] = normalise(inputs["pixels"]).contiguous(memory_format=memory_format(device))
        return inputs

    def _augmented(self, pixels: Tensor) -> Tensor:
        how, function = self.augment, compiled_augment() if self.compile else augment
        views = function(pixels, crop=how.crop, flip=how.flip, jitter=how.jitter, grayscale=how.grayscale)
        return views.contiguous(memory_format=memory_format(pixels.device))

    def resident(self, device: torch.device) -> Rows:
        """The same rows; on a GPU with their images there, where they fit."""
        if device.type != "cuda" or not isinstance(self.inputs, ImageRows):
            return self
        return replace(self, inputs=self.inputs.resident(device, torch.cuda.mem_get_info(device)[0]))


def memory_format(device: torch.device) -> torch.memory_format:
    """The order of images in memory that a device's convolutions are fast with."""
    return torch.channels_last if device.type == "cuda" else torch.contiguous_format


@functools.cache
def compiled_augment() -> Callable[..., Tensor]:
    """`augment`, compiled when it is first called."""
    return torch.compile(augment)


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
