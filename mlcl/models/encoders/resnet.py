"""torchvision's residual networks as encoders.

Shapes: B images, H x W pixels, D = 512 (resnet18) or 2048 (resnet50).
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any, Literal

from pydantic import Field
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn

from mlcl.config.encoder_section import EncoderConfig
from mlcl.errors import UserError
from mlcl.models.encoder import Encoder

DIMS = {"resnet18": 512, "resnet50": 2048}


class ResNetConfig(EncoderConfig):
    """A torchvision residual network without its classifier."""

    name: Literal["resnet18", "resnet50"]
    stem: Literal["cifar", "imagenet"] = Field("cifar", description="cifar: 3x3 stride 1, no max-pool")
    weights: str | None = Field(None, description="safetensors file of torchvision weights to start from")
    image_size: int = Field(32, ge=8, description="side in pixels that images are resized to")
    stretch: bool = Field(
        False,
        description="resize images whole, to another aspect ratio; else the longer side is cut to its centre",
    )


class ResNet(nn.Module):
    """A residual network without its classifier.

    `stem="imagenet"` is torchvision's 7x7 convolution of stride 2 with a max-pool; `stem="cifar"` is a 3x3
    convolution of stride 1 without max-pool, for images of about 32 pixels. `weights` is a safetensors file
    with torchvision's names of tensors; the classifier in it is ignored. `dim` is D.

    Raises UserError if torchvision cannot be imported, and if the weights do not fit the network.
    Source: He et al. 2016, section 3.3 (imagenet) and section 4.2 (the small stem).
    """

    def __init__(
        self,
        name: Literal["resnet18", "resnet50"],
        stem: Literal["cifar", "imagenet"] = "cifar",
        weights: str | Path | None = None,
    ) -> None:
        super().__init__()
        self.dim = DIMS[name]
        self.network: nn.Module = getattr(_import_torchvision_models(name), name)(weights=None)
        self.network.fc = nn.Identity()
        if stem == "cifar":
            self.network.conv1 = nn.Conv2d(3, 64, kernel_size=3, padding=1, bias=False)
            nn.init.kaiming_normal_(self.network.conv1.weight, mode="fan_out", nonlinearity="relu")
            self.network.maxpool = nn.Identity()
        if weights is not None:
            _load_weights(self.network, Path(weights).expanduser())

    def forward(self, pixels: Tensor) -> Tensor:
        """Maps `pixels` (B, 3, H, W) float to embeddings (B, D)."""
        h_BD: Tensor = self.network(pixels)
        return h_BD


def _import_torchvision_models(name: str) -> Any:
    # A torchvision for another torch raises RuntimeError: operator torchvision::nms does not exist.
    try:
        from torchvision import models
    except (ImportError, RuntimeError) as error:
        raise UserError(
            f"{name} needs a torchvision that fits the installed torch: pip install 'mlcl[images]', with "
            "torch and torchvision from the same index",
            key="encoder.name",
            found=str(error),
        ) from error
    return models


def _load_weights(network: nn.Module, file: Path) -> None:
    try:
        tensors = load_file(file)
    except (OSError, SafetensorError) as error:
        raise UserError(
            "cannot read these weights as safetensors", file=file, key="encoder.weights", found=str(error)
        ) from error
    loaded = {name: value for name, value in tensors.items() if not name.startswith("fc.")}
    state = network.state_dict()
    # Older files lack the counters of batches, which no output depends on.
    required_names = {name for name in state if not name.endswith("num_batches_tracked")}
    wrong_names = sorted((required_names - loaded.keys()) | (loaded.keys() - state.keys()))
    if wrong_names:
        raise UserError(
            "weights do not belong to this network", file=file, key="encoder.weights", found=wrong_names[:5]
        )
    for name in sorted(loaded):
        if loaded[name].shape != state[name].shape:
            raise UserError(
                f"weight {name} has another shape; does encoder.stem fit?",
                file=file,
                key="encoder.weights",
                found=list(loaded[name].shape),
                allowed=list(state[name].shape),
            )
    network.load_state_dict(loaded, strict=False)


def _declare_encoder(name: Literal["resnet18", "resnet50"], order: int) -> Encoder:
    return Encoder(
        name=name,
        title=f"ResNet-{name.removeprefix('resnet')} of torchvision (He et al. 2016)",
        section=ResNetConfig,
        modality="image",
        build=partial(ResNet, name),
        files=("weights",),
        packages=("torchvision",),
        order=order,
    )


RESNET18 = _declare_encoder("resnet18", 3)
RESNET50 = _declare_encoder("resnet50", 4)
