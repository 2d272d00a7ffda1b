"""Assigns rows of users' files to splits: as the data say, else by a seeded draw. Copies stay together."""

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
    "holdout": "test",
}
"""How a split may be written, in small letters."""
RARE, FEW = 200, 5_000
"""Classes of fewer rows, and all of a set of fewer rows, are stratified: a hash may miss the shares."""
NO_LABEL = (-1, -1)
"""Stands for a class in rows without a label."""

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
    words = [word.lower().removesuffix("set") for word in words]
    found = {SPLIT_NAMES[word] for word in words if word in SPLIT_NAMES}
    if len(found) > 1:  # as in GermEval21_TestData
        found = {SPLIT_NAMES[word] for word in words if word in SPLIT_NAMES and word != "eval"}
    if found == {"train", "validation"} or "trainval" in words:
        return "train"
    return found.pop() if len(found) == 1 else None


def divide(rows: SplitRows, classes: Classes, fractions: Sequence[float], seed: int) -> list[str]:
    """Fill in `rows.splits`, or what is missing of them, and return sentences on how.

    Rows of one group, rows with equal contents and twins go to one split. Splits that the data give stay, but
    for a share of train that becomes validation, or test, where there is none. Without any, rare classes are
    stratified; other rows go by a hash of their key, so that more rows do not move them. Raises UserError for
    a group in two splits, and for no training row.
    """
    keys = _keys(rows)
    if rows.splits:
        return _complete(rows, keys, classes, fractions, seed)
    rows.splits = stratify(classes, keys, fractions, seed)
    train_every_class(rows.splits, classes, keys, seed)
    keep_together(rows.splits, keys)
    copies = sum(count for count in Counter(rows.contents).values() if count > 1)
    said = f"rows with the content of another row, which lie in one split with it: {copies:,}"
    said += _contradicting(rows, classes)
    reason = "each class has a training row, and rows that belong together share a split"
    return [*([said] if copies else []), *shares_note(rows.splits, fractions, reason)]


def stratify(classes: Classes, keys: Sequence[str], fractions: Sequence[float], seed: int) -> list[str]:
    """A split for each row: rows that share a key share it, and rare classes have the wanted shares.

    Iterative stratification (Sechidis et al. 2011): the rows of the rarest class go to the split that lacks
    most rows of it, among the splits that lack rows at all; then those of the next class. Rows without a rare
    class go by a hash of their key.
    """
    unit_of: dict[str, int] = {}
    unit_N = [unit_of.setdefault(key, len(unit_of)) for key in keys]
    names, size = list(unit_of), Counter(unit_N)
    has: dict[int, set[tuple[int, int]]] = defaultdict(set)
    for space, labels in enumerate(classes):
        for unit, row in zip(unit_N, labels, strict=True):
            has[unit].update((space, label) for label in row)
    members: dict[tuple[int, int], set[int]] = defaultdict(set)
    for unit in range(len(names)):
        for label in has[unit] or {NO_LABEL}:
            members[label].add(unit)
    rows = {label: sum(size[unit] for unit in units) for label, units in members.items()}
    rare = {label for label in members if rows[label] < RARE or len(keys) < FEW}
    wanted = {label: [share * rows[label] for share in fractions] for label in rare}
    total = sum(size[unit] for unit in set().union(*(members[label] for label in rare)))
    need = [share * total for share in fractions]
    there = [at for at, share in enumerate(fractions) if share > 0]
    split: dict[int, int] = {}
    for own in sorted(rare, key=lambda label: (rows[label], position(str(label), seed))):
        units = members[own] - split.keys()
        for unit in sorted(units, key=lambda unit: (-size[unit], position(names[unit], seed))):
            best = max((need[at] > 0, round(wanted[own][at], 9), need[at], -at, at) for at in there)[-1]
            split[unit] = best
            need[best] -= size[unit]
            for label in (has[unit] or {NO_LABEL}) & rare:
                wanted[label][best] -= size[unit]
    by_hash = {unit: assign(names[unit], seed, fractions) for unit in range(len(names)) if unit not in split}
    return [by_hash[unit] if unit in by_hash else SPLITS[split[unit]] for unit in unit_N]


def _contradicting(rows: SplitRows, classes: Classes) -> str:
    """The end of a sentence on rows that have the content of an earlier one and other labels."""
    first = dict.fromkeys(rows.contents, -1)
    other = 0
    for row, content in enumerate(rows.contents):
        if first[content] < 0:
            first[content] = row
        other += any(set(space[row]) != set(space[first[content]]) for space in classes)
    return f", {other:,} of them with other labels than the first of their kind" if other else ""


def _complete(
    rows: SplitRows, keys: Sequence[str], classes: Classes, fractions: Sequence[float], seed: int
) -> list[str]:
    where: dict[str, int] = {}
    for row, group in enumerate(rows.groups):
        first = where.setdefault(group, row)
        if rows.splits[first] != rows.splits[row]:
            problem = f"a group is in two splits at {rows.places[first]} and {rows.places[row]}"
            raise UserError(problem, key="group", found=group, allowed="one split, or no column of splits")
    notes = []
    for at, split in ((1, "validation"), (2, "test")):
        train = [row for row, its in enumerate(rows.splits) if its == "train"]
        if not train:
            raise UserError("no row is for training", key="split", found=sorted(set(rows.splits)))
        if split in rows.splits or not fractions[at]:
            continue
        share = fractions[at] / (fractions[0] + fractions[at])
        hold_out(rows.splits, classes, keys, seed, share, split)
        if rows.splits.count(split) < share * len(train) / 2:
            # A hash is chance in a small set.
            its = [[space[row] for row in train] for space in classes]
            own = [keys[row] for row in train]
            held = stratify(its, own, (1 - share, share, 0), seed)
            train_every_class(held, its, own, seed)
            keep_together(held, own)
            for row, to in zip(train, held, strict=True):
                rows.splits[row] = "train" if to == "train" else split
        held_out = f"{rows.splits.count(split):,} of {len(train):,} training rows are held out for it"
        notes.append(f"no {split} rows are given: {held_out}")
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
