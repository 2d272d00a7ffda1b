"""Writes small data sets with a multi-label space `tags`, which a model learns in seconds."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from mlcl.data import LabelSpace
from mlcl.data.format import Modality, plural
from mlcl.data.writer import NewDataset, write_dataset

ROWS = {"train": 24, "validation": 12, "test": 12}
WORDS = ("ball", "vote", "rain")
COLOURS = ((220, 30, 30), (30, 220, 30), (30, 30, 220))
SIDE = 10
TAGS = LabelSpace(kind="multi_label", classes=(*WORDS, "odd"))
DIM = 6
"""The number of elements of a vector."""


def small_dataset(folder: Path, modality: Modality) -> Path:
    """Writes a data set of noisy texts of one to six words, images of one colour, or vectors to `folder`.

    The first word, the colour or the largest of a vector's first three numbers determines one of a row's
    tags; every second row also has the tag `odd`. Returns `folder`.
    """
    rng = np.random.default_rng(0)
    make = {"text": _make_text, "image": _make_image, "vectors": _make_vector}[modality]
    rows: dict[str, list[Any]] = {name: [] for name in ("id", "split", "tags", modality)}
    for split, count in ROWS.items():
        for i in range(count):
            rows["id"].append(f"{split}{i}")
            rows["split"].append(split)
            rows["tags"].append([i % 3] + [3] * (i % 2))
            rows[modality].append(make(i, rng))
    dataset = NewDataset(
        modality,
        {"tags": TAGS},
        [rows],
        dim=DIM if modality == "vectors" else None,
        name=f"small {plural(modality)}",
        origin="made by mlcl.testing",
        licence="none",
    )
    write_dataset(folder, dataset)
    return folder


def _make_text(i: int, rng: np.random.Generator) -> str:
    odd_words = ["odd"] if i % 2 else []
    return " ".join([WORDS[i % 3], *odd_words, *(f"noise{n}" for n in rng.integers(0, 12, i % 5))])


def _make_vector(i: int, rng: np.random.Generator) -> list[float]:
    vector = rng.normal(0, 0.1, DIM)
    vector[i % 3] += 1
    vector[3] += i % 2
    return [float(value) for value in vector]


def _make_image(i: int, rng: np.random.Generator) -> bytes:
    pixels = np.array(COLOURS[i % 3]) + rng.integers(-30, 30, (SIDE, SIDE, 3))
    if i % 2:
        pixels[: SIDE // 2] //= 2
    with io.BytesIO() as file:
        Image.fromarray(np.clip(pixels, 0, 255).astype(np.uint8)).save(file, "PNG")
        return file.getvalue()
