"""Views of images, batched on the device: random crop, mirror, colour jitter, gray.

Shapes: B images, C = 3 channels, H and W pixels. Random numbers are drawn once a batch, in one block.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn import functional

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
"""Channel statistics of ImageNet, which torchvision's weights expect and which suit other photographs too."""
LUMA = (0.299, 0.587, 0.114)
"""Weights of red, green and blue in a gray value (ITU-R BT.601)."""
RATIO = 4 / 3
"""Widest aspect ratio of a crop; the narrowest is its inverse."""
DRAWS = 9


def normalise(pixels_BCHW: Tensor) -> Tensor:
    """uint8 images as float32, (x / 255 - MEAN) / STD for each channel."""
    return _standardise(pixels_BCHW.float() / 255)


def augment(
    pixels_BCHW: Tensor,
    crop: float = 0.2,
    flip: bool = True,
    jitter: float = 0.4,
    grayscale: float = 0.2,
    generator: torch.Generator | None = None,
) -> Tensor:
    """One random view of every uint8 image, as normalised float32 (B, C, H, W).

    crop: the least share of the area that the random resized crop keeps (1: none). flip: mirror half of the
    images. jitter: brightness, contrast and saturation, each by a factor in [1 - jitter, 1 + jitter].
    grayscale: the probability of a gray image. Every image draws for itself, from `generator` or the global
    one.
    """
    device = pixels_BCHW.device if generator is None else generator.device
    draws = torch.rand(DRAWS, len(pixels_BCHW), generator=generator, device=device).to(pixels_BCHW.device)
    image = pixels_BCHW.float() / 255
    mirrored_B = (draws[0] < 0.5) & flip
    if crop < 1:
        image = _crop(image, crop, mirrored_B, draws[1:5])
    else:
        image = torch.where(_each(mirrored_B), image.flip(-1), image)
    if jitter > 0:
        image = _jitter(image, 1 + jitter * (2 * draws[5:8] - 1))
    image = torch.where(_each(draws[8] < grayscale), _gray(image).expand_as(image), image)
    return _standardise(image)


def _crop(image: Tensor, least: float, mirrored_B: Tensor, draws: Tensor) -> Tensor:
    """A crop of random area, aspect ratio and place, scaled back to the full size (bilinear)."""
    area_B = least + (1 - least) * draws[0]
    ratio_B = torch.exp(math.log(RATIO) * (2 * draws[1] - 1))
    width_B = (area_B * ratio_B).sqrt().clamp(max=1)
    height_B = (area_B / ratio_B).sqrt().clamp(max=1)
    theta = image.new_zeros(len(image), 2, 3)
    theta[:, 0, 0] = torch.where(mirrored_B, -width_B, width_B)
    theta[:, 1, 1] = height_B
    theta[:, 0, 2] = (1 - width_B) * (2 * draws[2] - 1)
    theta[:, 1, 2] = (1 - height_B) * (2 * draws[3] - 1)
    grid = functional.affine_grid(theta, list(image.shape), align_corners=False)
    return functional.grid_sample(
        image, grid, mode="bilinear", padding_mode="reflection", align_corners=False
    )


def _jitter(image: Tensor, factors: Tensor) -> Tensor:
    brightness, contrast, saturation = (_each(factor_B) for factor_B in factors)
    image = (image * brightness).clamp(0, 1)
    mean = _gray(image).mean(dim=(1, 2, 3), keepdim=True)
    image = torch.lerp(mean, image, contrast).clamp(0, 1)
    return torch.lerp(_gray(image), image, saturation).clamp(0, 1)


def _gray(image: Tensor) -> Tensor:
    weights = image.new_tensor(LUMA).view(1, 3, 1, 1)
    return (image * weights).sum(dim=1, keepdim=True)


def _standardise(image: Tensor) -> Tensor:
    mean, std = image.new_tensor(MEAN).view(1, 3, 1, 1), image.new_tensor(STD).view(1, 3, 1, 1)
    return (image - mean) / std


def _each(values_B: Tensor) -> Tensor:
    return values_B.view(-1, 1, 1, 1)
