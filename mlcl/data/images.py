"""Images of one size, decoded once into a memory-mapped cache.

Shapes: N images, B rows of a batch, H = W = the size in pixels.
"""

from __future__ import annotations

import hashlib
import io
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

from mlcl.data.cache_entries import cached
from mlcl.data.split import Split
from mlcl.errors import UserError
from mlcl.files import new_file

MAX_PIXELS = 64_000_000
"""An image that claims more is refused before it is decoded: a decompression bomb."""
WIDE = ("I", "F")
"""How Pillow calls pixels of 16 or 32 bits: its conversion to RGB cuts them off."""
DECODED_AT_ONCE = 1_024
"""Images that are in memory at once."""
RESIDENT = 0.25
"""Share of a device's free memory that images may fill."""
Pixels = NDArray[np.uint8]
T = TypeVar("T")
R = TypeVar("R")


@dataclass(frozen=True, eq=False)
class ImageRows:
    """Decoded images (N, 3, H, W) uint8: in memory or memory-mapped, or a tensor on a device."""

    pixels: Pixels | Tensor

    def __len__(self) -> int:
        return len(self.pixels)

    def batch(self, indices: Tensor) -> dict[str, Tensor]:
        """`pixels` (B, 3, H, W) uint8, where the images are."""
        if isinstance(self.pixels, Tensor):
            return {"pixels": self.pixels[indices.to(self.pixels.device, non_blocking=True)]}
        return {"pixels": torch.from_numpy(np.asarray(self.pixels[indices.numpy()]))}

    def resident(self, device: torch.device, free: int) -> ImageRows:
        """The same images on the device, where they fit in RESIDENT of its `free` bytes; else themselves."""
        if isinstance(self.pixels, Tensor) or self.pixels.nbytes > RESIDENT * free:
            return self
        return ImageRows(torch.from_numpy(np.array(self.pixels)).to(device))


def decode_all(split: Split, size: int, cache: Path) -> ImageRows:
    """All images of a split, (N, 3, size, size) uint8: decoded by the first call, memory-mapped ever after.

    The cache is keyed by the data set's fingerprint, the rows and the size. Raises UserError for an image
    that cannot be decoded, with its shard, row and id.
    """
    key = hashlib.sha256(f"{split.fingerprint}/{size}".encode()).hexdigest()[:24]
    file = cache / "images" / f"{key}.npy"

    def make() -> None:
        shape = (len(split), 3, size, size)
        file.parent.mkdir(parents=True, exist_ok=True)
        with new_file(file) as work:
            array = np.lib.format.open_memmap(work, mode="w+", dtype=np.uint8, shape=shape)
            for row, pixels in enumerate(decoded_split(split, size)):
                array[row] = pixels
            array.flush()
            del array

    return ImageRows(cached(file, make, partial(np.load, mmap_mode="r")))


def decoded_split(split: Split, size: int) -> Iterator[Pixels]:
    """Every image (3, size, size) of a split, in order.

    Raises UserError for an image that cannot be decoded, with its shard, row and id.
    """

    def refuse(row: int, found: str) -> UserError:
        file, shard_row = split.place(row)
        where = f"row {shard_row}, id {split.ids[row]}"
        return UserError(f"image cannot be decoded at {where}", file=file, key="image", found=found)

    return decoded(split.images(), size, refuse)


def decoded(
    images: Sequence[str | bytes | Path], size: int, refuse: Callable[[int, str], UserError]
) -> Iterator[Pixels]:
    """Every image (3, size, size), in order, of encoded bytes or paths of files.

    `refuse` makes the error that is raised for an image that cannot be decoded, from its row and the reason.
    """
    for row, result in enumerate(in_threads(partial(_try_decode, size=size), images)):
        if isinstance(result, str):
            raise refuse(row, result)
        yield result


def in_threads(function: Callable[[T], R], images: Sequence[T]) -> Iterator[R]:
    """The function of every image, in order; `DECODED_AT_ONCE` images are in memory at once.

    Threads, since Pillow decodes and resizes outside the interpreter lock; processes would copy the pixels.
    """
    with ThreadPoolExecutor(min(8, os.cpu_count() or 1)) as pool:
        for first in range(0, len(images), DECODED_AT_ONCE):
            yield from pool.map(function, images[first : first + DECODED_AT_ONCE])


def decode(data: bytes, size: int) -> Pixels:
    """One encoded image as (3, size, size) uint8: upright, RGB, shorter side scaled, centre cropped.

    Raises ValueError as `upright` does.
    """
    image = upright(data, size)
    if image.size != (size, size):
        image = ImageOps.fit(image, (size, size), Image.Resampling.BILINEAR)
    # Contiguous: a convolution of another memory order differs in its last bits.
    return np.ascontiguousarray(np.asarray(image).transpose(2, 0, 1))


def upright(data: bytes, side: int | None = None) -> Image.Image:
    """One encoded image, upright and in RGB; a JPEG may come smaller, with twice `side` at least.

    Raises ValueError for bytes that are no whole image, for one above `MAX_PIXELS`, and for one of more than
    8 bits a channel: what its values mean is not in it.
    """
    try:
        with Image.open(io.BytesIO(data)) as image:
            if image.width * image.height > MAX_PIXELS:
                raise ValueError(f"{image.width} x {image.height} pixels, more than {MAX_PIXELS}")
            if image.mode.startswith(WIDE):
                raise ValueError(f"mode {image.mode}: more than 8 bits a channel")
            if side is not None:
                image.draft("RGB", (2 * side, 2 * side))
            return ImageOps.exif_transpose(image).convert("RGB")
    except UnidentifiedImageError:
        raise ValueError("no form of image that Pillow knows") from None
    except (OSError, SyntaxError, Image.DecompressionBombError) as error:
        raise ValueError(str(error)) from None


def _try_decode(image: str | bytes | Path, size: int) -> Pixels | str:
    try:
        return decode(image if isinstance(image, bytes) else Path(image).read_bytes(), size)
    except Exception as error:  # a damaged image makes Pillow raise nearly anything
        return f"{type(error).__name__}: {error}"
