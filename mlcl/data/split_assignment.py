"""Which split a row goes to, where a source does not say: a seeded hash of its key."""

from __future__ import annotations

import hashlib
import heapq
import re
from collections.abc import Iterable, Mapping, Sequence
from functools import partial

from mlcl.data.format import SPLITS

FRACTIONS = (0.8, 0.1, 0.1)
"""Shares of train, validation and test."""
WORD = re.compile(r"\w+")


def words_of(text: str) -> str:
    """The words of a text in small letters, one space between; the text itself where it has none.

    As a key it is the same for two copies of a text, which keeps them out of two splits.
    """
    return " ".join(WORD.findall(text.casefold())) or text


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


def draw(keys: Iterable[str], seed: int, sizes: Mapping[str, int]) -> dict[str, str]:
    """Key to split, of exact sizes: keys in the order of a seeded hash, the first to the first of `sizes`.

    Keys that no split has room for are left out; of too few keys the last splits get less. The keys of the
    first split stay when a later split grows. Keys must differ; only as many as are drawn are held.
    """
    first = heapq.nsmallest(sum(sizes.values()), keys, key=partial(position, seed=seed))
    splits = (split for split, size in sizes.items() for _ in range(size))
    return dict(zip(first, splits, strict=False))


def halves(keys: Sequence[str], seed: int) -> dict[str, str]:
    """Key to `validation` or `test`, half of the keys each; of an odd number test gets one more."""
    return draw(keys, seed, {"validation": len(keys) // 2, "test": len(keys) - len(keys) // 2})
