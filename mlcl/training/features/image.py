"""The extractor of images: outputs of a frozen torchvision network, or the pixels themselves.

Shapes: N images, H x W pixels, D numbers of a row.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.torch import load_file
from torch import Tensor, nn

from mlcl.data import normalise
from mlcl.data.images import Pixels
from mlcl.errors import UserError
from mlcl.models.encoders.features import ImageInput
from mlcl.models.encoders.resnet import ResNet
from mlcl.training.features.extractor import (
    ONE_BY_ONE,
    ROWS_AT_ONCE,
    BatchRun,
    Contents,
    Kind,
    freeze,
    outputs,
    save_weights,
)
from mlcl.training.precision import Precision

WEIGHTS = "weights.safetensors"


@dataclass(frozen=True)
class Image:
    """x_n = f(normalised pixels of image n) in float32.

    f is a residual network, or it flattens the pixels.
    """

    network: nn.Module
    columns: int
    device: torch.device

    def __call__(self, contents: Pixels, run: BatchRun = ONE_BY_ONE) -> NDArray[np.float32]:
        """Returns rows (N, D) float32 of images (N, 3, H, W) uint8."""
        count = len(contents)
        rows = (np.arange(first, min(first + ROWS_AT_ONCE, count)) for first in range(0, count, ROWS_AT_ONCE))
        batches = (
            (indices, {"pixels": normalise(torch.from_numpy(np.array(contents[indices])))})
            for indices in rows
        )
        return outputs(self.network, batches, (count, self.columns), self.device, "float32", run)

    def save(self, folder: Path) -> None:
        """Writes the network's weights; for pixels a file without tensors."""
        save_weights(self.network, folder / WEIGHTS)


class _Flat(nn.Module):
    def forward(self, pixels: Tensor) -> Tensor:
        return pixels.flatten(1)


def _fit(section: ImageInput, _: Contents | None, device: torch.device, __: Precision) -> Image:
    if section.network == "pixels":
        return Image(_Flat(), 3 * section.image_size**2, device)
    network = ResNet(section.network, "imagenet", section.weights)
    return Image(freeze(network, device), network.dim, device)


def _load(section: ImageInput, folder: Path, device: torch.device) -> Image:
    if section.network == "pixels":
        return _fit(section, None, device, "float32")
    network = ResNet(section.network, "imagenet")
    network.load_state_dict(load_file(folder / WEIGHTS))
    return Image(freeze(network, device), network.dim, device)


def _state(section: ImageInput) -> object:
    if section.weights is None:
        return None
    file = Path(section.weights).expanduser()
    if not file.is_file():
        raise UserError("no such file", key="encoder.image.weights", found=file)
    return [file.stat().st_size, file.stat().st_mtime_ns]


IMAGE = Kind(_fit, _load, _state, network=True)
