"""Images that a caller gives, decoded as those that were trained on."""

from __future__ import annotations

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import repeat
from pathlib import Path

import numpy as np

from mlcl.data.images import ImageRows, Pixels, decode
from mlcl.errors import UserError

Content = str | bytes | Path
"""A text; or an image as encoded bytes or as the path of a file."""


def decode_images(images: Sequence[Content], size: int, places: Sequence[str]) -> ImageRows:
    """All of them, (N, 3, size, size) uint8. Raises UserError with the place of one that is no image."""
    with ThreadPoolExecutor(min(8, os.cpu_count() or 1)) as pool:
        pixels = list(pool.map(_decode, images, places, repeat(size)))
    return ImageRows(np.stack(pixels) if pixels else np.zeros((0, 3, size, size), np.uint8))


def _decode(image: Content, place: str, size: int) -> Pixels:
    try:
        return decode(image if isinstance(image, bytes) else Path(image).read_bytes(), size)
    except Exception as error:  # a damaged image makes Pillow raise nearly anything
        problem = f"image cannot be decoded at {place}"
        raise UserError(problem, key="image", found=f"{type(error).__name__}: {error}") from None
