"""Converts texts and images to the encoder's inputs, in training, evaluation and prediction alike.

Shapes: N rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import numpy as np
from PIL import Image

from mlcl.config import JobConfig
from mlcl.data import ImageRows, Split, Tokenizer, TokenRows, decode_all, encode
from mlcl.data.images import Pixels, decode_images
from mlcl.data.tables.notation import is_unicode
from mlcl.errors import UserError
from mlcl.models import ENCODERS

Content = str | bytes | Path | Image.Image | Sequence[float]
"""The content of a row: a text, a vector, or an image: encoded bytes, the path of a file, or of Pillow."""


@dataclass(frozen=True)
class InputReader:
    """Tokenises texts, or decodes images if there is no tokenizer.

    `size` is the largest number of tokens that are read of a text, or the height and width in pixels that
    images are resized to; for `stretch` see `mlcl.data.images.decode`.
    """

    tokenizer: Tokenizer | None
    size: int
    stretch: bool = False

    @classmethod
    def of(cls, job: JobConfig, tokenizer: Tokenizer | None) -> InputReader:
        """Returns the reader for the encoder of a job."""
        encoder = ENCODERS[job.encoder.name]
        return cls(tokenizer, encoder.size(job.encoder), encoder.stretches(job.encoder))

    def split(self, split: Split, cache: Path) -> TokenRows | ImageRows:
        """Reads all rows of a split, memory-mapped from the cache, which the first call fills.

        Raises UserError, which names the row, for an image that cannot be decoded.
        """
        if self.tokenizer is None:
            return decode_all(split, self.size, cache, stretch=self.stretch)
        return encode(self.tokenizer, split, self.size, cache)

    def contents(self, contents: Sequence[Content], places: Sequence[str]) -> TokenRows | ImageRows:
        """Reads texts or images that are in memory; `places` says where each one comes from, for error
        messages.

        Raises UserError for a text that is not Unicode and for an image that cannot be decoded.
        """
        if self.tokenizer is None:
            return ImageRows(decode_contents(contents, places, self.size, stretch=self.stretch))
        return encode(self.tokenizer, read_texts(contents, places), self.size)


def read_texts(contents: Sequence[Content], places: Sequence[str]) -> list[str]:
    """Returns contents as texts.

    Raises UserError, with the entry of `places`, for a content that is no text or not Unicode.
    """
    for text, place in zip(contents, places, strict=True):
        if not isinstance(text, str):
            raise UserError(f"not a text at {place}", key="text", found=type(text).__name__)
        if not is_unicode(text):
            raise UserError(f"no Unicode text at {place}", key="text", found="half of a surrogate pair")
    return [str(text) for text in contents]


def decode_contents(
    images: Sequence[Content], places: Sequence[str], size: int, *, stretch: bool = False
) -> Pixels:
    """Decodes images to (N, 3, size, size) uint8; for `stretch` see `mlcl.data.images.decode`.

    Raises UserError, with the entry of `places`, for an image that cannot be decoded.
    """

    def refuse(row: int, found: str) -> UserError:
        return UserError(f"image cannot be decoded at {places[row]}", key="image", found=found)

    given = cast("Sequence[str | bytes | Path | Image.Image]", images)
    pixels = list(decode_images(given, size, refuse, stretch=stretch))
    return np.stack(pixels) if pixels else np.zeros((0, 3, size, size), np.uint8)
