"""Scenes of one to three handwritten digits: multi-label images of real pixels, from scikit-learn's digits.

The 1,797 digits are divided first, so that no digit of a validation or test scene is in a training scene.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image
from pydantic import Field

from mlcl.config.section import Section
from mlcl.data.format import SPLITS, LabelSpace
from mlcl.data.source import NewDataset, Source, Workspace
from mlcl.data.split_assignment import FRACTIONS, assign

CELLS = 2
"""A scene is a grid of CELLS x CELLS; each digit has a cell to itself."""
SMALLEST = 0.7
"""The smallest side of a digit, as a fraction of the side of its cell."""
Pixels = NDArray[np.uint8]


class Options(Section):
    """The options of the source `digits`: the number and the size of the scenes."""

    scenes: int = Field(5_000, ge=100, le=1_000_000, description="scenes in all, 80/10/10")
    size: int = Field(32, ge=16, le=256, description="side of a scene in pixels")


def read(options: Options, split_seed: int, _work: Workspace) -> NewDataset:
    """Returns the data set with the multi-label space `digits`."""
    spaces = {"digits": LabelSpace(kind="multi_label", classes=tuple("0123456789"))}
    return NewDataset("image", spaces, _batches(options, split_seed))


def _batches(options: Options, seed: int) -> Iterator[dict[str, list[Any]]]:
    pixels, target = load()
    digit_split = assign_splits(len(pixels), seed)
    for number, (split, share) in enumerate(zip(SPLITS, FRACTIONS, strict=True)):
        indices = np.flatnonzero(digit_split == split)
        rng = np.random.default_rng([seed, number])
        count = round(options.scenes * share)
        scenes = [_draw_scene(pixels, target, indices, options.size, rng) for _ in range(count)]
        yield {
            "id": [f"{split}-{i}" for i in range(count)],
            "split": [split] * count,
            "image": [image for image, _ in scenes],
            "digits": [labels for _, labels in scenes],
        }


def load() -> tuple[Pixels, NDArray[np.int64]]:
    """Returns the pixels (1797, 8, 8) and the digits (1797,) of all images."""
    from sklearn.datasets import load_digits

    bunch = load_digits()
    return (bunch.images * (255 / 16)).round().astype(np.uint8), bunch.target


def assign_splits(images: int, seed: int) -> NDArray[np.str_]:
    """Returns the split of each of `images` digits (images,), by a seeded hash of the digit's index."""
    return np.array([assign(str(i), seed) for i in range(images)])


def _draw_scene(
    pixels: Pixels,
    target: NDArray[np.int64],
    indices: NDArray[np.int64],
    size: int,
    rng: np.random.Generator,
) -> tuple[bytes, list[int]]:
    sample = rng.choice(indices, size=rng.integers(1, 4), replace=False)
    return draw(pixels[sample], size, rng), sorted({int(label) for label in target[sample]})


def draw(digits: Pixels, size: int, rng: np.random.Generator) -> bytes:
    """Returns a PNG file of a scene of one to four digits, each in a cell of its own."""
    places = rng.permutation(CELLS * CELLS)
    canvas = Image.new("L", (size, size))
    cell = size // CELLS
    for digit, place in zip(digits, places, strict=False):
        side = int(rng.integers(round(SMALLEST * cell), cell + 1))
        left, top = rng.integers(0, cell - side + 1, size=2)
        digit_image = Image.fromarray(digit).resize((side, side), Image.Resampling.BILINEAR)
        canvas.paste(digit_image, (int(place % CELLS * cell + left), int(place // CELLS * cell + top)))
    with io.BytesIO() as file:
        canvas.save(file, "PNG")
        return file.getvalue()


SOURCE = Source(
    name="digits",
    title="scenes of one to three handwritten digits: multi-label images",
    origin="Optical Recognition of Handwritten Digits (UCI), through scikit-learn",
    licence="CC BY 4.0",
    version="1",
    options=Options,
    read=read,
    packages=("scikit-learn", "pillow", "numpy"),
)
