"""Which split a row of a table goes to: as the table says, else by a seeded hash. Copies stay together."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from mlcl.data.format import SPLITS
from mlcl.data.split_assignment import (
    assign,
    copies_between,
    hold_out_validation,
    keep_together,
    train_every_class,
)
from mlcl.errors import UserError

SPLIT_NAMES = {name: name for name in SPLITS} | {
    "training": "train",
    "val": "validation",
    "valid": "validation",
    "dev": "validation",
    "testing": "test",
}
"""How a split may be written."""


@dataclass
class TableRows:
    """Of each row: its id, its place in the table, its group, a digest of its content, and its split.

    `groups` and `splits` are empty where the table has none.
    """

    ids: list[str] = field(default_factory=list)
    places: list[str] = field(default_factory=list)
    groups: list[str] = field(default_factory=list)
    contents: list[bytes] = field(default_factory=list)
    splits: list[str] = field(default_factory=list)


def split_of_file(file: Path) -> str | None:
    """The split that a file's name says, such as `reviews_train.csv`; None where it says none, or two."""
    words = re.split("[^a-z]+", file.stem.lower())
    found = {SPLIT_NAMES[word] for word in words if word in SPLIT_NAMES}
    return found.pop() if len(found) == 1 else None


def divide(
    rows: TableRows, classes: Sequence[Sequence[Sequence[int]]], fractions: Sequence[float], seed: int
) -> list[str]:
    """Fill in `rows.splits`, or what is missing of them; what to say of it, as sentences.

    `classes` holds, for each label space, the class indices of each row. Rows of one group, and rows with the
    same content, go to one split. Splits that the table gives stay, but for a share of train that becomes
    validation where it has none. Raises UserError for a group in two splits, and for no training row.
    """
    keys = _keys(rows)
    if rows.splits:
        return _complete(rows, keys, classes, fractions, seed)
    rows.splits = [assign(key, seed, fractions) for key in keys]
    train_every_class(rows.splits, classes, keys, seed)
    keep_together(rows.splits, keys)
    copies = sum(count for count in Counter(rows.contents).values() if count > 1)
    return (
        [f"rows with the content of another row, which lie in one split with it: {copies:,}"]
        if copies
        else []
    )


def _complete(
    rows: TableRows,
    keys: Sequence[str],
    classes: Sequence[Sequence[Sequence[int]]],
    fractions: Sequence[float],
    seed: int,
) -> list[str]:
    where: dict[str, int] = {}
    for row, group in enumerate(rows.groups):
        first = where.setdefault(group, row)
        if rows.splits[first] != rows.splits[row]:
            problem = f"a group is in two splits at {rows.places[first]} and {rows.places[row]}"
            raise UserError(problem, key="group", found=group, allowed="one split, or no column of splits")
    notes, trained = [], rows.splits.count("train")
    if not trained:
        raise UserError("no row is for training", key="split", found=sorted(set(rows.splits)))
    if "validation" not in rows.splits and fractions[1]:
        hold_out_validation(rows.splits, classes, keys, seed, fractions[1] / (fractions[0] + fractions[1]))
        held = rows.splits.count("validation")
        notes.append(
            f"no validation rows are given: {held:,} of {trained:,} training rows are held out for it"
        )
    return notes + copies_between(rows.contents, rows.splits)


def _keys(rows: TableRows) -> list[str]:
    """The least id, or group, of all rows that must share a row's split."""
    # Later than the module: every command reads the list of sources.
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    names = rows.groups or rows.ids
    pairs = [pair for values in (names, rows.contents) for pair in _with_first(values)]
    entries = np.asarray(pairs, dtype=np.int64).reshape(-1, 2)
    graph = coo_array((np.ones(len(entries)), (entries[:, 0], entries[:, 1])), shape=(len(names),) * 2)
    parts = connected_components(graph, directed=False)[1].tolist()
    least: dict[int, str] = {}
    for part, name in zip(parts, names, strict=True):
        least[part] = min(name, least.get(part, name))
    return [least[part] for part in parts]


def _with_first(values: Sequence[Hashable]) -> list[tuple[int, int]]:
    """Each row with the first one of the same value, where that is another one."""
    first: dict[Hashable, int] = {}
    return [(row, first[value]) for row, value in enumerate(values) if first.setdefault(value, row) != row]
