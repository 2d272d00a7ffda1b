"""Which split a row of the user's goes to: as the data say, else by a seeded draw. Copies stay together."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field

import numpy as np

from mlcl.data.format import SPLITS
from mlcl.data.split_assignment import (
    assign,
    copies_between,
    hold_out,
    keep_together,
    position,
    shares_note,
    train_every_class,
)
from mlcl.errors import UserError

SPLIT_NAMES = {name: name for name in SPLITS} | {
    "training": "train",
    "trn": "train",
    "val": "validation",
    "valid": "validation",
    "dev": "validation",
    "eval": "validation",
    "evaluation": "validation",
    "testing": "test",
    "tst": "test",
}
"""How a split may be written, in small letters."""
RARE = 200
"""Rows below which a seeded hash may leave a class out of validation or test: such classes are stratified."""

Classes = Sequence[Sequence[Sequence[int]]]
"""For each label space, the class indices of each row."""


@dataclass
class SplitRows:
    """Each row's id, place for messages, group, digest of its content, and split.

    `groups` and `splits` are empty where the data give none. `twins` are further keys that rows of one split
    share.
    """

    ids: Sequence[str]
    places: Sequence[str]
    contents: Sequence[bytes]
    groups: Sequence[str] = ()
    splits: list[str] = field(default_factory=list)
    twins: Sequence[str] = ()


def split_of_name(name: str) -> str | None:
    """The split that a name says, such as `reviews_train`, `seg_test` or `Val2017`; None for none, or two."""
    words = re.findall("[A-Z]?[a-z]+|[A-Z]+", name)
    found = {SPLIT_NAMES[word.lower()] for word in words if word.lower() in SPLIT_NAMES}
    return found.pop() if len(found) == 1 else None


def divide(rows: SplitRows, classes: Classes, fractions: Sequence[float], seed: int) -> list[str]:
    """Fill in `rows.splits`, or what is missing of them, and return sentences on how.

    Rows of one group, rows with equal contents and twins go to one split. Splits that the data give stay, but
    for a share of train that becomes validation, or test, where there is none. Without any, classes with
    fewer than `RARE` rows are stratified (Sechidis et al. 2011); other rows go by a hash of their key, so
    that more rows do not move them. Raises UserError for a group in two splits, and for no training row.
    """
    keys = _keys(rows)
    if rows.splits:
        return _complete(rows, keys, classes, fractions, seed)
    rows.splits = stratify(classes, keys, fractions, seed)
    train_every_class(rows.splits, classes, keys, seed)
    keep_together(rows.splits, keys)
    copies = sum(count for count in Counter(rows.contents).values() if count > 1)
    said = f"rows with the content of another row, which lie in one split with it: {copies:,}"
    reason = "each class has a training row, and rows that belong together share a split"
    return [*([said] if copies else []), *shares_note(rows.splits, fractions, reason)]


def stratify(classes: Classes, keys: Sequence[str], fractions: Sequence[float], seed: int) -> list[str]:
    """A split for each row: rows that share a key share it, and rare classes have the wanted shares.

    Iterative stratification: of the rarest class the rows go, in the order of a seeded hash, to the split
    that lacks most rows of it, among those that lack rows at all; then comes the next class. Rows without a
    rare class go by their hash.
    """
    unit_of: dict[str, int] = {}
    unit_N = [unit_of.setdefault(key, len(unit_of)) for key in keys]
    members: dict[tuple[int, int], set[int]] = defaultdict(set)
    has: dict[int, set[tuple[int, int]]] = defaultdict(set)
    for space, labels in enumerate(classes):
        for unit, row in zip(unit_N, labels, strict=True):
            for label in row:
                members[space, label].add(unit)
                has[unit].add((space, label))
    names = list(unit_of)
    rare = {label: units for label, units in members.items() if len(units) < RARE}
    wanted = {label: [share * len(units) for share in fractions] for label, units in rare.items()}
    need = [share * len(names) for share in fractions]
    split: dict[int, int] = {}
    there = [at for at, share in enumerate(fractions) if share > 0]
    for name in sorted(rare, key=lambda label: (len(rare[label]), position(str(label), seed))):
        for unit in sorted(rare[name] - split.keys(), key=lambda unit: position(names[unit], seed)):
            lacking = [(need[at] > 0, round(wanted[name][at], 9), need[at], -at, at) for at in there]
            best = max(lacking)[-1]
            split[unit] = best
            need[best] -= 1
            for other in has[unit] & rare.keys():
                wanted[other][best] -= 1
    return [
        SPLITS[split[unit]] if unit in split else assign(name, seed, fractions)
        for unit, name in zip(unit_N, (names[unit] for unit in unit_N), strict=True)
    ]


def _complete(
    rows: SplitRows, keys: Sequence[str], classes: Classes, fractions: Sequence[float], seed: int
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
    for at, split in ((1, "validation"), (2, "test")):
        if split not in rows.splits and fractions[at]:
            before = rows.splits.count("train")
            share = fractions[at] / (fractions[0] + fractions[at])
            hold_out(rows.splits, classes, keys, seed, share, split)
            held = before - rows.splits.count("train")
            said = f"{held:,} of {before:,} training rows are held out for it"
            notes.append(f"no {split} rows are given: {said}")
    return notes + copies_between(rows.contents, rows.splits)


def _keys(rows: SplitRows) -> list[str]:
    """The least id, or group, of all rows that must share a row's split."""
    # Later than the module: every command reads the list of sources.
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    names = rows.groups or rows.ids
    pairs = [pair for values in (names, rows.contents, rows.twins) for pair in _with_first(values)]
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
