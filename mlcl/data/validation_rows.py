"""Redraws validation rows from train and validation together; the test split does not change.

Shapes: N rows of train and validation.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Hashable, Sequence
from itertools import chain
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from mlcl.data.cache_entries import read_cached
from mlcl.data.columns import as_rows
from mlcl.data.dataset import Dataset
from mlcl.data.images import in_threads
from mlcl.data.row_groups import content_keys
from mlcl.data.split import Split
from mlcl.data.split_assignment import (
    Classes,
    digest_of,
    image_digest,
    least_names,
    position,
    stratify,
    train_every_class,
)
from mlcl.errors import UserError

KEY = "data.validation_seed"
SMALL = 1_000
"""The number of validation rows from which on a search does not redraw them."""


def redraws_validation(data: Dataset) -> bool:
    """Whether each search redraws the validation rows: they are fewer than `SMALL` and at most train's."""
    train, validation = (data.info.rows.get(name, 0) for name in ("train", "validation"))
    return 0 < validation < SMALL and train >= validation


def redraw_validation(data: Dataset, seed: int, cache: Path | None = None) -> Dataset:
    """Returns the data set with the same number of validation rows, redrawn from train and validation.

    Rows of one group and rows of equal content stay in one split, and so do texts that are equal but for
    numbers and words such as left and right, unless train and validation share such texts as they are stored.
    Classes are stratified by `stratify`, and each class keeps a training row. The number of validation rows
    may differ by a few if no group of rows fits. `seed` is part of the new fingerprint; the folder `cache`
    keeps the row numbers. Raises UserError if train or validation has no rows, or if all rows must stay
    together.
    """
    if cache is None:
        return data.with_validation(seed, _draw(data, seed))
    file = cache / "validation" / f"{data.info.stored_fingerprint}-{seed}-2.npz"

    def write(work_file: Path) -> None:
        with work_file.open("wb") as stream:
            np.savez(stream, **_draw(data, seed))  # type: ignore[arg-type]

    return data.with_validation(seed, read_cached(file, write, _read))


def _read(file: Path) -> dict[str, NDArray[np.int64]]:
    with np.load(file) as arrays:
        return {name: arrays[name] for name in ("train", "validation")}


def _draw(data: Dataset, seed: int) -> dict[str, NDArray[np.int64]]:
    """Draws new train and validation rows from the rows of both; returns the row numbers of each split."""
    splits = [data.split(name) for name in ("train", "validation")]
    numbers_N = np.concatenate([split.rows.numpy() for split in splits])
    names = [name for split in splits for name in (split.groups() if data.info.grouped else split.ids)]
    keys = least_names(names, *_row_content_keys(splits))
    classes = [
        [labels for split in splits for labels in as_rows(split.labels(name), space).lists()]
        for name, space in data.info.class_spaces().items()
    ]
    size = len(splits[1])
    share = size / len(numbers_N)
    new_splits = stratify(classes, keys, (1 - share, share, 0.0), seed)
    train_every_class(new_splits, classes, keys, seed)
    _resize(new_splits, classes, keys, seed, size)
    is_validation_N = np.array(new_splits) == "validation"
    if not is_validation_N.any():
        problem = "no validation row is left: train and validation are copies or one group"
        raise UserError(problem, file=data.place, key=KEY, found=seed, allowed="null")
    return {"train": np.sort(numbers_N[~is_validation_N]), "validation": np.sort(numbers_N[is_validation_N])}


def _row_content_keys(splits: Sequence[Split]) -> list[list[Hashable]]:
    """Returns lists of a key for each row; rows with an equal key in a list stay in one split.

    The keys are the contents and, for texts, their twin forms, unless train and validation share a twin form.
    """
    if splits[0].info.modality == "image":  # compared by pixels, as in the splits of sources
        return [[digest for split in splits for digest in in_threads(image_digest, split.images())]]
    keys = [list(content_keys(split)) for split in splits]
    if splits[0].info.modality != "text":
        return [list(chain(*keys))]
    digests: list[Hashable] = [digest_of(text) for split in splits for text in split.texts()]
    return [digests, list(chain(*keys))] if set(keys[0]).isdisjoint(keys[1]) else [digests]


def _resize(splits: list[str], classes: Classes, keys: list[str], seed: int, size: int) -> None:
    """Moves rows, all of a key at once, in seeded order until validation has `size` rows or none fits."""
    members: dict[str, list[int]] = defaultdict(list)
    for row, key in enumerate(keys):
        members[key].append(row)
    train_counts = [
        Counter(label for row, labels in enumerate(space) if splits[row] == "train" for label in labels)
        for space in classes
    ]
    deficit = size - splits.count("validation")
    source, target = ("train", "validation") if deficit > 0 else ("validation", "train")
    for key in sorted(members, key=lambda key: position(key, seed)):
        rows = members[key]
        if not 0 < len(rows) <= abs(deficit) or splits[rows[0]] != source:
            continue
        moved_counts = [Counter(label for row in rows for label in space[row]) for space in classes]
        if source == "train":
            if any(
                train_count[c] <= n
                for train_count, moved_count in zip(train_counts, moved_counts, strict=True)
                for c, n in moved_count.items()
            ):
                continue
            for train_count, moved_count in zip(train_counts, moved_counts, strict=True):
                train_count.subtract(moved_count)
        for row in rows:
            splits[row] = target
        deficit -= len(rows) if deficit > 0 else -len(rows)
