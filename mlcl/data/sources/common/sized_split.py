"""Splits of exact sizes, where a paper gives numbers of rows and not the rows."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping, Sequence
from functools import partial

from mlcl.data.split_assignment import position


def draw(keys: Iterable[str], seed: int, sizes: Mapping[str, int]) -> dict[str, str]:
    """Key to split: the keys in the order of a seeded hash, the first to the first split of `sizes`.

    Keys that no split has room for are left out; of too few keys the last splits get less. The keys of the
    first split stay when a later split grows. Keys must differ; only as many as are drawn are held.
    """
    first = heapq.nsmallest(sum(sizes.values()), keys, key=partial(position, seed=seed))
    splits = (split for split, size in sizes.items() for _ in range(size))
    return dict(zip(first, splits, strict=False))


def halves(keys: Sequence[str], seed: int) -> dict[str, str]:
    """Key to `validation` or `test`, half of the keys each; of an odd number test gets one more."""
    return draw(keys, seed, {"validation": len(keys) // 2, "test": len(keys) - len(keys) // 2})
