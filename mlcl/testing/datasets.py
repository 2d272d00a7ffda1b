"""Small data sets that are learnt in seconds, with a multi-label space `tags`."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from mlcl.data import LabelSpace
from mlcl.data.format import Modality
from mlcl.data.writer import write_dataset

ROWS = {"train": 24, "validation": 12, "test": 12}
WORDS = ("ball", "vote", "rain")
COLOURS = ((220, 30, 30), (30, 220, 30), (30, 30, 220))
SIDE = 10
TAGS = LabelSpace(kind="multi_label", classes=(*WORDS, "odd"))


def small_dataset(folder: Path, modality: Modality) -> Path:
    """Texts of one to six words, or images of one colour with noise, written into `folder`.

    The first word or the colour tells one tag; every second row of three has a second one.
    """
    rng = np.random.default_rng(0)
    rows: dict[str, list[Any]] = {name: [] for name in ("id", "split", "tags", modality)}
    for split, count in ROWS.items():
        for i in range(count):
            rows["id"].append(f"{split}{i}")
            rows["split"].append(split)
            rows["tags"].append([i % 3] + [3] * (i % 2))
            rows[modality].append(_text(i, rng) if modality == "text" else _image(i, rng))
    write_dataset(
        folder,
        name=f"small {modality}s",
        modality=modality,
        label_spaces={"tags": TAGS},
        batches=[rows],
        source="made by mlcl.testing",
        licence="none",
    )
    return folder


def _text(i: int, rng: np.random.Generator) -> str:
    odd = ["odd"] if i % 2 else []
    return " ".join([WORDS[i % 3], *odd, *(f"noise{n}" for n in rng.integers(0, 12, i % 5))])


def _image(i: int, rng: np.random.Generator) -> bytes:
    pixels = np.array(COLOURS[i % 3]) + rng.integers(-30, 30, (SIDE, SIDE, 3))
    if i % 2:
        pixels[: SIDE // 2] //= 2
    with io.BytesIO() as file:
        Image.fromarray(np.clip(pixels, 0, 255).astype(np.uint8)).save(file, "PNG")
        return file.getvalue()
