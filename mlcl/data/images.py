"""Images of one size, decoded once into a memory-mapped cache, and their random views on the device.

Shapes: N images, B rows of a batch, C = 3 channels, H and W pixels (decoded: the size). The random numbers of
the views of a batch are drawn in one call.
"""

from __future__ import annotations

import hashlib
import io
import math
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image, ImageOps, UnidentifiedImageError
from torch import Tensor
from torch.nn import functional

from mlcl.data.cache_entries import read_cached
from mlcl.data.split import Split
from mlcl.errors import UserError
from mlcl.labels import copy_to_device

MAX_PIXELS = 64_000_000
"""The most pixels of an image; a larger one, maybe a decompression bomb, is refused before it is decoded."""
WIDE = ("I", "F")
"""First letters of Pillow's modes of 16 or 32 bits, which are refused: conversion to RGB would clip them."""
DECODED_AT_ONCE = 1_024
"""The number of images that `in_threads` holds in memory at once."""
RESIDENT = 0.25
"""The fraction of a device's free memory that images may fill."""
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
"""Channel statistics of ImageNet, which torchvision's weights expect and which suit other photographs too."""
LUMA = (0.299, 0.587, 0.114)
"""Weights of red, green and blue in a gray value (ITU-R BT.601)."""
RATIO = 4 / 3
"""Widest aspect ratio of a crop; the narrowest is its inverse."""
DRAWS = 9
Pixels = NDArray[np.uint8]
ImageContent = str | bytes | Path | Image.Image
"""An image: its path, its encoded bytes, or Pillow's image."""
Refuse = Callable[[int, str], UserError]
"""Creates the error for an image that cannot be read, from its row and the reason."""
T = TypeVar("T")
R = TypeVar("R")


@dataclass(frozen=True, eq=False)
class ImageRows:
    """Decoded images (N, 3, H, W) uint8: in memory or memory-mapped, or a tensor on a device."""

    pixels: Pixels | Tensor

    def __len__(self) -> int:
        return len(self.pixels)

    def batch(self, indices: Tensor) -> dict[str, Tensor]:
        """Returns `pixels` (B, 3, H, W) uint8 of the images at `indices`, on the device of the images."""
        if isinstance(self.pixels, Tensor):
            return {"pixels": self.pixels[copy_to_device(indices, self.pixels.device)]}
        return {"pixels": torch.from_numpy(np.asarray(self.pixels[indices.numpy()]))}

    def resident(self, device: torch.device, free: int) -> ImageRows:
        """Copies the images to the device if they fit in RESIDENT of its `free` bytes; else returns self."""
        if isinstance(self.pixels, Tensor) or self.pixels.nbytes > RESIDENT * free:
            return self
        return ImageRows(torch.from_numpy(np.array(self.pixels)).to(device))


def decode_all(split: Split, size: int, cache: Path, *, stretch: bool = False) -> ImageRows:
    """Returns all images of a split, (N, 3, size, size) uint8: decoded by the first call, then memory-mapped.

    The cache is keyed by the data set's fingerprint, the rows, the size and `stretch` (see
    `decode`). The environment variable MLCL_SCRATCH names a folder on the machine's own disk that replaces
    `cache`. Raises UserError for an image that cannot be decoded, with its shard, row and id.
    """
    content = f"{split.fingerprint}/{size}/white" + ("/stretch" if stretch else "")
    key = hashlib.sha256(content.encode()).hexdigest()[:24]
    file = Path(os.environ.get("MLCL_SCRATCH") or cache) / "images" / f"{key}.npy"

    def write(work_file: Path) -> None:
        shape = (len(split), 3, size, size)
        array = np.lib.format.open_memmap(work_file, mode="w+", dtype=np.uint8, shape=shape)
        for row, pixels in enumerate(decode_split(split, size, stretch=stretch)):
            array[row] = pixels
        array.flush()

    return ImageRows(read_cached(file, write, partial(np.load, mmap_mode="r")))


def decode_split(split: Split, size: int, *, stretch: bool = False) -> Iterator[Pixels]:
    """Yields each image of a split as (3, size, size) uint8. Raises UserError for an undecodable one."""
    decode_image = partial(decode, size=size, stretch=stretch)
    return read_images(split.images(), decode_image, partial(decode_error, split))


def decode_error(split: Split, row: int, reason: str) -> UserError:
    """Returns the error for an image of a split that cannot be decoded, for this `reason`."""
    file, shard_row = split.place(row)
    place = f"row {shard_row}, id {split.ids[row]}"
    return UserError(f"image cannot be decoded at {place}", file=file, key="image", found=reason)


def read_images(
    images: Sequence[ImageContent], function: Callable[[bytes | Image.Image], R], refuse: Refuse
) -> Iterator[R]:
    """Applies a function to every image (its bytes, or Pillow's image) and yields the results in order.

    `function` is for instance `decode`, `load_upright` or `to_png`. Raises the error that `refuse` creates
    for the first image on which `function` fails.
    """

    def attempt(image: ImageContent) -> R | Exception:
        try:
            return function(Path(image).read_bytes() if isinstance(image, (str, Path)) else image)
        except Exception as error:  # a damaged image makes Pillow raise nearly anything
            return error

    for row, result in enumerate(in_threads(attempt, images)):
        if isinstance(result, Exception):
            raise refuse(row, f"{type(result).__name__}: {result}")
        yield result


def in_threads(function: Callable[[T], R], images: Sequence[T]) -> Iterator[R]:
    """Applies a function to every image in threads, in runs of `DECODED_AT_ONCE`; yields results in order.

    Threads suffice since Pillow decodes and resizes without the interpreter lock; processes would copy the
    pixels.
    """
    with ThreadPoolExecutor(min(8, os.cpu_count() or 1)) as pool:
        for start in range(0, len(images), DECODED_AT_ONCE):
            yield from pool.map(function, images[start : start + DECODED_AT_ONCE])


def decode(data: bytes | Image.Image, size: int, *, stretch: bool = False) -> Pixels:
    """Decodes an image to (3, size, size) uint8, upright, in RGB; raises ValueError as `load_upright` does.

    The shorter side is scaled to `size`, and the centre is kept. With `stretch` both sides are scaled, so
    that all of the image is kept and its aspect ratio is lost.
    """
    image = load_upright(data, size)
    if image.size != (size, size):
        scale = Image.Image.resize if stretch else ImageOps.fit
        image = scale(image, (size, size), Image.Resampling.BILINEAR)
    # The array is contiguous, since convolutions of other memory orders differ in the last bits.
    return np.ascontiguousarray(np.asarray(image).transpose(2, 0, 1))


def load_upright(data: bytes | Image.Image, side: int | None = None) -> Image.Image:
    """Decodes an image, or converts a Pillow image: upright by its EXIF data, RGB, on white if transparent.

    With `side`, a large JPEG is decoded at a smaller size, of at least twice `side`, which is faster. Raises
    ValueError for bytes that are no whole image, and for an image above `MAX_PIXELS` or of more than 8 bits a
    channel, since the range of such values is not known.
    """
    if isinstance(data, Image.Image):
        return _to_upright_rgb(data)
    try:
        with Image.open(io.BytesIO(data)) as image:
            return _to_upright_rgb(image, side)
    except UnidentifiedImageError:
        raise ValueError("not an image format that Pillow reads") from None
    except (OSError, SyntaxError, Image.DecompressionBombError) as error:
        raise ValueError(str(error)) from None


def _to_upright_rgb(image: Image.Image, side: int | None = None) -> Image.Image:
    if image.width * image.height > MAX_PIXELS:
        raise ValueError(f"{image.width} x {image.height} pixels, more than {MAX_PIXELS}")
    # Of 16-bit colours Pillow keeps the upper byte, which turns 12-bit values nearly black.
    has_16_bits = any(";16" in str(tile[3]) for tile in getattr(image, "tile", ()))
    if has_16_bits or image.mode.startswith(WIDE):
        raise ValueError(f"mode {image.mode}: more than 8 bits a channel")
    if side is not None:
        image.draft("RGB", (2 * side, 2 * side))
    upright_image = ImageOps.exif_transpose(image)
    if upright_image.has_transparency_data:
        upright_image = upright_image.convert("RGBA")
        upright_image = Image.alpha_composite(Image.new("RGBA", upright_image.size, "white"), upright_image)
    return upright_image.convert("RGB")


def to_png(image: bytes | Image.Image) -> bytes:
    """Encodes an image as PNG, upright and in RGB; equal pixels give equal bytes."""
    upright_image, file = load_upright(image), io.BytesIO()
    upright_image.info.clear()
    upright_image.save(file, "png", compress_level=1)
    return file.getvalue()


def normalise(pixels_BCHW: Tensor) -> Tensor:
    """Converts uint8 images to float32 and each channel to (x / 255 - MEAN) / STD."""
    return _standardise(pixels_BCHW.float() / 255)


def augment(
    pixels_BCHW: Tensor,
    crop: float = 0.2,
    flip: bool = True,
    jitter: float = 0.4,
    grayscale: float = 0.2,
    generator: torch.Generator | None = None,
) -> Tensor:
    """Returns one random view of each uint8 image, as normalised float32 (B, C, H, W).

    crop: the least fraction of the area that the random resized crop draws (1: no crop); sides are clamped to
    the image. flip: mirror each image with probability 1/2. jitter: brightness, contrast and saturation, each
    by a factor in [1 - jitter, 1 + jitter]. grayscale: the probability of a gray image. The random numbers of
    the images are independent; they come from `generator`, or else from the global generator.
    """
    device = pixels_BCHW.device if generator is None else generator.device
    draws = torch.rand(DRAWS, len(pixels_BCHW), generator=generator, device=device).to(pixels_BCHW.device)
    image = pixels_BCHW.float() / 255
    mirrored_B = (draws[0] < 0.5) & flip
    if crop < 1:
        image = _crop(image, crop, mirrored_B, draws[1:5])
    else:
        image = torch.where(_image_values(mirrored_B), image.flip(-1), image)
    if jitter > 0:
        image = _jitter(image, 1 + jitter * (2 * draws[5:8] - 1))
    image = torch.where(_image_values(draws[8] < grayscale), _to_gray(image).expand_as(image), image)
    return _standardise(image)


def _crop(image: Tensor, min_area: float, mirrored_B: Tensor, draws: Tensor) -> Tensor:
    """Crops images at random in area, ratio and position, mirrors some, and scales them back (bilinear)."""
    area_B = min_area + (1 - min_area) * draws[0]
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
    brightness, contrast, saturation = (_image_values(factor_B) for factor_B in factors)
    image = (image * brightness).clamp(0, 1)
    mean = _to_gray(image).mean(dim=(1, 2, 3), keepdim=True)
    image = torch.lerp(mean, image, contrast).clamp(0, 1)
    return torch.lerp(_to_gray(image), image, saturation).clamp(0, 1)


def _to_gray(image: Tensor) -> Tensor:
    return (image * _channel_values(LUMA, image)).sum(dim=1, keepdim=True)


def _standardise(image: Tensor) -> Tensor:
    return (image - _channel_values(MEAN, image)) / _channel_values(STD, image)


def _channel_values(values: Sequence[float], image: Tensor) -> Tensor:
    """Returns a tensor (1, 3, 1, 1) of one number per channel.

    The tensor is filled on the device, since a GPU would wait for numbers from the host.
    """
    return torch.stack([image.new_full((), value) for value in values]).view(1, 3, 1, 1)


def _image_values(values_B: Tensor) -> Tensor:
    return values_B.view(-1, 1, 1, 1)
