"""Which split a row goes to, where a source does not say: a seeded hash of its key."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence

from mlcl.data.format import SPLITS

FRACTIONS = (0.8, 0.1, 0.1)
"""Shares of train, validation and test."""


def position(key: str, seed: int) -> float:
    """A number in [0, 1) that only the key and the seed decide, on every machine."""
    digest = hashlib.sha256(f"{seed}\0{key}".encode()).digest()
    return int.from_bytes(digest[:7], "big") / (1 << 56)


def assign(key: str, seed: int, fractions: Sequence[float] = FRACTIONS) -> str:
    """The split of a row. Another row, more rows or another order never move it."""
    where = position(key, seed)
    edge = 0.0
    for split, share in zip(SPLITS, fractions, strict=True):
        edge += share
        if where < edge:
            return split
    return SPLITS[max(i for i, share in enumerate(fractions) if share > 0)]


def train_every_class(
    splits: list[str], classes: Iterable[Sequence[Sequence[int]]], keys: Sequence[str], seed: int
) -> None:
    """Move rows to train, in place, until every class of every label space has a training row.

    `classes` holds, for each space, the class indices of each row. Of a class without a training row, the row
    whose key lies first goes, so the outcome depends on keys and seed alone.
    """
    order = sorted(range(len(keys)), key=lambda row: position(keys[row], seed))
    for space in classes:
        trained = {c for row, split in enumerate(splits) if split == "train" for c in space[row]}
        for row in order:
            if splits[row] != "train" and not trained.issuperset(space[row]):
                splits[row] = "train"
                trained.update(space[row])
