"""Describes a data set: its labels, texts and images, from the training split.

The other splits are counted, not read: no choice may depend on held-out labels.
"""

from __future__ import annotations

import io
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from PIL import Image

from mlcl.data.columns import as_rows
from mlcl.data.dataset import Dataset
from mlcl.data.format import SPLITS, LabelSpace, plural
from mlcl.data.split import Split

QUANTILES = (0.0, 0.05, 0.25, 0.5, 0.75, 0.95, 1.0)
MAX_LABELS = 5
"""The number of labels that are listed as the most frequent ones, and as the least frequent ones."""
IMAGES_MEASURED = 1_000


@dataclass(frozen=True)
class LabelDescription:
    """Statistics of one label space over the training rows.

    `cardinality` is the average number of labels per row, and `density` is cardinality divided by `classes`.
    `imbalance` is the number of rows of the most frequent class divided by that of the least frequent class
    that occurs. `missing` counts the rows without a label, and `unused` the classes without a training row.
    `unknown` counts the pairs of row and class for which it is unknown whether the row has the class;
    `unknown_share` divides it by the number of all pairs.
    """

    kind: str
    classes: int
    cardinality: float
    density: float
    imbalance: float
    missing: int
    unused: int
    unknown: int
    unknown_share: float
    most_frequent: dict[str, int]
    least_frequent: dict[str, int]


@dataclass(frozen=True)
class Description:
    """The result of `describe`: metadata, row counts by split, label spaces, hierarchies and contents."""

    name: str
    modality: str
    source: str
    licence: str
    fingerprint: str
    rows: dict[str, int]
    shards: int
    labels: dict[str, LabelDescription]
    hierarchies: dict[str, list[str]]
    content: dict[str, float]
    notes: tuple[str, ...]


def describe(place: str | Path) -> Description:
    """Describes a data set: row counts of all splits, label spaces and contents of the training split.

    Without a training split, the first split that exists is described. `content` holds quantiles of the words
    per text, of the width and height of the first 1,000 images, or of the vectors' Euclidean norm. Raises
    UserError if `Dataset.open` cannot open the data set.
    """
    data = Dataset.open(place)
    info = data.info
    split = data.split(next(name for name in SPLITS if info.rows.get(name)))
    levels = {
        name: list(space.levels) for name, space in info.label_spaces.items() if space.kind == "hierarchy"
    }
    return Description(
        info.name,
        info.modality,
        info.source,
        info.licence,
        info.fingerprint,
        {str(split): rows for split, rows in info.rows.items()},
        len(info.shards),
        {name: _describe_labels(split, name, space) for name, space in info.class_spaces().items()},
        levels,
        _describe_content(split),
        info.notes,
    )


def in_words(description: Description) -> list[str]:
    """Formats the description as lines of text for a reader."""
    rows = ", ".join(f"{split} {count:,}" for split, count in description.rows.items())
    lines = [
        f"{description.name}: {plural(description.modality)}, {rows}",
        f"from {description.source}; licence: {description.licence}",
        _format_content(description.content),
    ]
    for name, labels in description.labels.items():
        lines.append(_format_labels(name, labels))
    lines += [f"{name}: the levels {' > '.join(levels)}" for name, levels in description.hierarchies.items()]
    return [*lines, *(f"note: {note}" for note in description.notes)]


def _format_content(content: Mapping[str, float]) -> str:
    names = {"words": "words a text", "norm": "length of a vector"}
    parts = []
    for quantity in dict.fromkeys(key.partition("_q")[0] for key in content):
        low, median, high, highest = (content[f"{quantity}_q{q}"] for q in ("0", "50", "95", "100"))
        quantiles = f"{median:.3g} in the median, {low:.3g} to {high:.3g} in 95 %, {highest:.3g} at most"
        parts.append(f"{names.get(quantity, f'{quantity} in pixels')}: {quantiles}")
    return "; ".join(parts)


def _format_labels(name: str, labels: LabelDescription) -> str:
    is_multi_label = labels.kind == "multi_label"
    most_frequent = ", ".join(f"{label} {count:,}" for label, count in labels.most_frequent.items())
    rarest_label, count = next(iter(labels.least_frequent.items()), ("none", 0))
    parts = [f"{labels.classes:,} {'labels' if is_multi_label else 'classes'}"]
    parts += [f"{labels.cardinality:.2f} a row"] if is_multi_label else []
    parts += [f"most often {most_frequent}", f"least often {rarest_label} {count:,}"]
    parts += [f"{labels.unused:,} without a training row"] if labels.unused else []
    parts += [f"training rows without a label: {labels.missing:,}"] if labels.missing else []
    parts += [f"unknown entries: {labels.unknown:,} ({labels.unknown_share:.1%})"] if labels.unknown else []
    return f"{name}: {'; '.join(parts)}"


def _describe_labels(split: Split, name: str, space: LabelSpace) -> LabelDescription:
    rows = as_rows(split.labels(name), space)
    counts = torch.bincount(rows.columns, minlength=space.n_classes)
    label_counts = [
        (space.classes[c], int(counts[c])) for c in counts.argsort(descending=True, stable=True).tolist()
    ]
    used_labels = [(label, count) for label, count in label_counts if count]
    cardinality = len(rows.columns) / len(rows)
    unknown_count = 0 if rows.unknown is None else len(rows.unknown.columns)
    return LabelDescription(
        kind=space.kind,
        classes=space.n_classes,
        cardinality=cardinality,
        density=cardinality / space.n_classes,
        imbalance=used_labels[0][1] / used_labels[-1][1] if used_labels else 0.0,
        missing=int((rows.counts() == 0).sum()),
        unused=space.n_classes - len(used_labels),
        unknown=unknown_count,
        unknown_share=unknown_count / (len(rows) * space.n_classes),
        most_frequent=dict(used_labels[:MAX_LABELS]),
        least_frequent=dict(used_labels[-MAX_LABELS:][::-1]),
    )


def _describe_content(split: Split) -> dict[str, float]:
    if split.info.modality == "text":
        sizes = {"words": [len(text.split()) for text in split.texts()]}
    elif split.info.modality == "vectors":
        sizes = {"norm": np.linalg.norm(split.vectors(), axis=1).tolist()}
    else:
        sizes = {"width": [], "height": []}
        for image_bytes in split.images()[:IMAGES_MEASURED]:
            with Image.open(io.BytesIO(image_bytes)) as image:
                sizes["width"].append(image.width)
                sizes["height"].append(image.height)
    return {
        f"{name}_q{q * 100:g}": float(np.quantile(values, q))
        for name, values in sizes.items()
        for q in QUANTILES
    }
