"""Converts texts and images to the encoder's inputs, in training, evaluation and prediction alike.

Shapes: N rows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal, cast

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from mlcl.config import JobConfig
from mlcl.data import ImageRows, Split, Tokenizer, TokenRows, decode_all, encode
from mlcl.data.images import ImageContent, Pixels, decode, decode_error, load_upright, read_images
from mlcl.data.tables.notation import is_unicode
from mlcl.errors import UserError
from mlcl.models import ENCODERS


@dataclass(frozen=True, eq=False)
class CollatedRows:
    """Rows whose texts or images, of a split or in memory, are passed to a collate function batch by batch.

    `refuse` creates the error for an image that cannot be decoded, from its row and the reason; it is None
    for texts.
    """

    collate: Callable[[list[Any]], Mapping[str, Tensor]]
    contents: Sequence[Any]
    refuse: Callable[[int, str], UserError] | None

    def __len__(self) -> int:
        return len(self.contents)

    def batch(self, indices: Tensor) -> dict[str, Tensor]:
        """Returns the collated tensors (B, ...) by name. Raises UserError for an undecodable image."""
        rows, refuse = indices.tolist(), self.refuse
        contents = [self.contents[row] for row in rows]
        if refuse is not None:
            contents = list(
                read_images(contents, load_upright, lambda index, reason: refuse(rows[index], reason))
            )
        return dict(self.collate(contents))


Content = str | bytes | Path | Image.Image | Sequence[float]
"""The content of a row: a text, a vector, or an image: encoded bytes, the path of a file, or of Pillow."""


@dataclass(frozen=True)
class InputReader:
    """Tokenises texts, or decodes images if there is no tokenizer; or leaves both to a collate function.

    `size` is the largest number of tokens that are read of a text, or the height and width in pixels that
    images are resized to; for `stretch` see `mlcl.data.images.decode`. `collate` and `modality` are those of
    the encoder.
    """

    tokenizer: Tokenizer | None
    size: int
    stretch: bool = False
    collate: Callable[[list[Any]], Mapping[str, Tensor]] | None = None
    modality: Literal["text", "image"] | None = None

    @classmethod
    def of(cls, job: JobConfig, tokenizer: Tokenizer | None) -> InputReader:
        """Returns the reader for the encoder of a job."""
        encoder = ENCODERS[job.encoder.name]
        if encoder.collate is not None:
            return cls(None, 0, collate=encoder.collate, modality=encoder.modality)
        return cls(tokenizer, encoder.size(job.encoder), encoder.stretches(job.encoder))

    def split(self, split: Split, cache: Path) -> TokenRows | ImageRows | CollatedRows:
        """Reads all rows of a split, memory-mapped from the cache, which the first call fills.

        A collate function reads rows only when they are needed, and is tried here on the first row. Raises
        UserError, which names the row, for an image that cannot be decoded.
        """
        if self.collate is not None:
            is_text = self.modality == "text"
            contents, refuse = split.texts() if is_text else split.images(), partial(decode_error, split)
            rows = CollatedRows(self.collate, contents, None if is_text else refuse)
            rows.batch(torch.arange(min(1, len(rows))))
            return rows
        if self.tokenizer is None:
            return decode_all(split, self.size, cache, stretch=self.stretch)
        return encode(self.tokenizer, split, self.size, cache)

    def contents(
        self, contents: Sequence[Content], places: Sequence[str]
    ) -> TokenRows | ImageRows | CollatedRows:
        """Reads texts or images in memory; `places` has the position of each, for error messages.

        Raises UserError for a text that is not Unicode and for an image that cannot be decoded.
        """
        if self.collate is not None:
            if self.modality == "text":
                return CollatedRows(self.collate, read_texts(contents, places), None)
            return CollatedRows(self.collate, contents, partial(_decode_error, places))
        if self.tokenizer is None:
            return ImageRows(decode_contents(contents, places, self.size, stretch=self.stretch))
        return encode(self.tokenizer, read_texts(contents, places), self.size)


def read_texts(contents: Sequence[Content], places: Sequence[str]) -> list[str]:
    """Returns contents as texts. Raises UserError, with its entry of `places`, for other content."""
    for text, place in zip(contents, places, strict=True):
        if not isinstance(text, str):
            raise UserError(f"not a text at {place}", key="text", found=type(text).__name__)
        if not is_unicode(text):
            raise UserError(f"not Unicode text at {place}", key="text", found="half of a surrogate pair")
    return [str(text) for text in contents]


def decode_contents(
    images: Sequence[Content], places: Sequence[str], size: int, *, stretch: bool = False
) -> Pixels:
    """Decodes images to (N, 3, size, size) uint8; for `stretch` see `mlcl.data.images.decode`.

    Raises UserError, with the entry of `places`, for an image that cannot be decoded.
    """
    contents, decoder = cast("Sequence[ImageContent]", images), partial(decode, size=size, stretch=stretch)
    pixels = list(read_images(contents, decoder, partial(_decode_error, places)))
    return np.stack(pixels) if pixels else np.zeros((0, 3, size, size), np.uint8)


def _decode_error(places: Sequence[str], row: int, reason: str) -> UserError:
    return UserError(f"image cannot be decoded at {places[row]}", key="image", found=reason)
