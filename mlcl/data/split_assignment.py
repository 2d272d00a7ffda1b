"""Assigns rows to splits: as given, else by a seeded draw. Copies of a content stay together."""

from __future__ import annotations

import hashlib
import heapq
import re
from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise

import numpy as np

from mlcl.data.format import SPLITS
from mlcl.errors import UserError

SPLIT_NAMES = {
    **dict.fromkeys(("train", "training", "trn"), "train"),
    **dict.fromkeys(("validation", "val", "valid", "dev", "eval", "evaluation", "publictest"), "validation"),
    **dict.fromkeys(("test", "testing", "tst", "holdout", "privatetest"), "test"),
}
"""Maps lower-case names that data sets give their splits to `train`, `validation` or `test`."""
RARE, FEW = 200, 5_000
"""Classes of fewer than RARE rows, and all classes of a set of fewer than FEW rows, are stratified."""
NO_LABEL = (-1, -1)
"""Stands for the class of rows without a label, as a pair of label space and class."""
FRACTIONS = (0.8, 0.1, 0.1)
"""The default fractions of train, validation and test."""
WORD = re.compile(r"\w+")
NUMBER = re.compile(r"\d+")
SIDE = re.compile(r"\b(?:left|right|bilateral|unspecified)\b ?")
FAR = 0.02
"""A note is made if the wanted and the actual fraction of a split differ by more than this."""

Classes = Sequence[Sequence[Sequence[int]]]
"""The class indices of each row, in one sequence for each label space."""


def words_of(text: str) -> str:
    """Returns the words of a text in small letters, one space between; the text itself if it has no words."""
    return " ".join(WORD.findall(text.casefold())) or text


def twin_form(text: str) -> str:
    """Returns a key that texts share if only numbers and words for a side (`SIDE`) tell them apart."""
    return twin_of_words(words_of(text))


def twin_of_words(words: str) -> str:
    """Returns the twin form of a text, from the result of `words_of`."""
    return SIDE.sub("", NUMBER.sub("0", words)).strip() or words


def position(key: str, seed: int) -> float:
    """Returns a pseudo-random number in [0, 1) that depends only on key and seed, on every machine."""
    digest = hashlib.sha256(f"{seed}\0{key}".encode()).digest()
    return int.from_bytes(digest[:7], "big") / (1 << 56)


def assign(key: str, seed: int, fractions: Sequence[float] = FRACTIONS) -> str:
    """Returns the split of a row, which depends only on the row's key, the seed and the fractions."""
    point = position(key, seed)
    edge = 0.0
    for split, share in zip(SPLITS, fractions, strict=True):
        edge += share
        if point < edge:
            return split
    return SPLITS[max(i for i, share in enumerate(fractions) if share > 0)]


def assign_validation(key: str, seed: int, share: float) -> str:
    """Returns `validation` for about the fraction `share` of the keys, by a seeded hash, else `train`."""
    return assign(key, seed, (1 - share, share, 0.0))


def train_every_class(splits: list[str], classes: Classes, keys: Sequence[str], seed: int) -> None:
    """Moves rows to train, in place, until every class of every label space has a training row.

    The row whose key comes first in a seeded order is moved: the outcome depends on keys and seed alone. Rows
    that share their key with a training row follow it.
    """
    order = sorted(range(len(keys)), key=lambda row: position(keys[row], seed))
    for space in classes:
        train_classes = {c for row, split in enumerate(splits) if split == "train" for c in space[row]}
        for row in order:
            if splits[row] != "train" and not train_classes.issuperset(space[row]):
                splits[row] = "train"
                train_classes.update(space[row])
    train_keys = {key for key, split in zip(keys, splits, strict=True) if split == "train"}
    for row, key in enumerate(keys):
        if key in train_keys:
            splits[row] = "train"


def hold_out_rows(
    splits: list[str],
    classes: Classes,
    keys: Sequence[str],
    seed: int,
    share: float,
    target_split: str = "validation",
    *,
    stratified: bool = False,
) -> None:
    """Moves a seeded share of the training rows to `target_split`, in place.

    Every class keeps a training row. Rows with an equal key stay together. Keys are drawn by their hash or,
    with `stratified`, by `stratify`.
    """
    train = [row for row, split in enumerate(splits) if split == "train"]
    train_keys, labels = [keys[row] for row in train], [[space[row] for row in train] for space in classes]
    if stratified:
        new_splits = stratify(labels, train_keys, (1 - share, share, 0.0), seed)
    else:
        new_splits = [assign_validation(key, seed, share) for key in train_keys]
    train_every_class(new_splits, labels, train_keys, seed)
    for row, split in zip(train, new_splits, strict=True):
        splits[row] = split if split == "train" else target_split


def shares_note(splits: Sequence[str], fractions: Sequence[float], reason: str) -> list[str]:
    """Returns a note if a split's fraction of the rows is far from the wanted one, or if it has no row.

    The result is a list of one note, which ends with `reason`, or an empty list.
    """
    counts = Counter(splits)
    shares = [counts[split] / max(1, len(splits)) for split in SPLITS]
    pairs = list(zip(shares, fractions, strict=True))
    if not any(abs(share - fraction) > FAR or (fraction > 0 and not share) for share, fraction in pairs):
        return []
    shares_text = " / ".join(f"{100 * share:.1f}" for share in shares)
    fractions_text = " / ".join(f"{100 * fraction:.3g}" for fraction in fractions)
    return [f"the splits have {shares_text} % of the rows where {fractions_text} were wanted: {reason}"]


def copies_between(contents: Iterable[Hashable], splits: Iterable[str]) -> list[str]:
    """Returns a list of one note on validation and test rows that are copies of training rows, or []."""
    rows = list(zip(contents, splits, strict=True))
    train_contents = {content for content, split in rows if split == "train"}
    counts = Counter(split for content, split in rows if split != "train" and content in train_contents)
    counts_text = ", ".join(f"{counts[split]:,} of {split}" for split in SPLITS if counts[split])
    return [f"rows with the content of a training row: {counts_text}"] if counts_text else []


def digest_of(content: str | bytes) -> bytes:
    """Returns a digest that two copies of a content share; for a text it is the digest of its words."""
    data = words_of(content).encode("utf-8", "surrogatepass") if isinstance(content, str) else content
    return hashlib.sha256(data).digest()[:16]


def image_digest(data: bytes) -> bytes:
    """Returns a digest of an image's pixels, upright and in RGB; of its bytes if it cannot be decoded."""
    # Imported here, since every command imports this module with the list of sources.
    from mlcl.data.images import load_upright

    try:
        image = load_upright(data)
    except Exception:  # a damaged image makes Pillow raise nearly anything
        return digest_of(data)
    return digest_of(b"%dx%d " % image.size + image.tobytes())


def draw(keys: Iterable[str], seed: int, sizes: Mapping[str, int]) -> dict[str, str]:
    """Maps distinct keys to splits of the given sizes, filled one after the other in seeded hash order.

    Keys beyond the sizes are left out; with too few keys the last splits get fewer. The keys of the first
    split stay when a later split grows. Only as many keys as are drawn are held in memory.
    """
    drawn_keys = heapq.nsmallest(sum(sizes.values()), keys, key=partial(position, seed=seed))
    splits = (split for split, size in sizes.items() for _ in range(size))
    return dict(zip(drawn_keys, splits, strict=False))


def halves(keys: Sequence[str], seed: int) -> dict[str, str]:
    """Maps half of the keys, rounded down, to `validation`, and the others to `test`."""
    return draw(keys, seed, {"validation": len(keys) // 2, "test": len(keys) - len(keys) // 2})


@dataclass
class RowKeys:
    """The values of each row that decide its split. `groups`, `splits` and `twins` may be empty.

    `places` are lines or file names, for messages. `contents` are digests, and `twins` keys of near copies.
    `splits` are the given splits, which `divide` completes or, if there are none, assigns.
    """

    ids: Sequence[str]
    places: Sequence[str]
    contents: Sequence[bytes]
    groups: Sequence[str] = ()
    splits: list[str] = field(default_factory=list)
    twins: Sequence[str] = ()


def _name_words(name: str) -> list[str]:
    return [word.lower().removesuffix("set") for word in re.findall("[A-Z]?[a-z]+|[A-Z]+", name)]


def with_eval_as_test(splits: Mapping[str, str | None]) -> dict[str, str | None]:
    """Returns `splits`, with `eval` names as test if another name is validation and no name is test.

    `splits` maps names to splits. If all other names are train, `eval` stays validation.
    """
    eval_names = {name for name in splits if {"eval", "evaluation"} & set(_name_words(name))}
    candidates = {name for name in eval_names if splits[name] == "validation"}
    other_splits = {split for name, split in splits.items() if name not in candidates}
    is_test = "validation" in other_splits and "test" not in other_splits
    return {**splits, **dict.fromkeys(candidates if is_test else (), "test")}


def split_of_name(name: str) -> str | None:
    """Returns the split in a name such as `reviews_train` or `Val2017`; None if it has none or several.

    `train_val` and `trainval` count as train.
    """
    words = _name_words(name)
    for end in reversed(range(1, len(words))):
        if words[end] and words[end - 1] and words[end - 1] + words[end] in SPLIT_NAMES:  # as in PublicTest
            words[end - 1 : end + 1] = [words[end - 1] + words[end]]
    splits = {SPLIT_NAMES[word] for word in words if word in SPLIT_NAMES}
    if len(splits) > 1:  # as in GermEval21_TestData
        splits = {SPLIT_NAMES[word] for word in words if word in SPLIT_NAMES and word != "eval"}
    if "trainval" in words or ("train", "val") in pairwise(words):
        return "train" if splits <= {"train", "validation"} else None
    return splits.pop() if len(splits) == 1 else None


def divide(rows: RowKeys, classes: Classes, fractions: Sequence[float], seed: int) -> list[str]:
    """Assigns `rows.splits` in place, and returns notes on how the splits came about.

    Given splits stay; if they lack validation or test, it is drawn from train. Without given splits, rare
    classes, and all classes of fewer than FEW rows, are stratified; other rows are assigned by a hash of
    their key, so that further rows do not move them. Drawn splits keep rows with an equal group, content or
    key of `rows.twins` together. Raises UserError for a group in two given splits, and if no row is left for
    training.
    """
    keys = least_names(rows.groups or rows.ids, rows.contents, rows.twins)
    if rows.splits:
        return _complete_splits(rows, keys, classes, fractions, seed)
    rows.splits = stratify(classes, keys, fractions, seed)
    train_every_class(rows.splits, classes, keys, seed)
    copies = sum(count for count in Counter(rows.contents).values() if count > 1)
    note = f"rows with the content of another row, which lie in one split with it: {copies:,}"
    note += _note_contradictions(rows, classes)
    reason = "each class has a training row, and rows that belong together share a split"
    return [*([note] if copies else []), *shares_note(rows.splits, fractions, reason)]


def stratify(classes: Classes, keys: Sequence[str], fractions: Sequence[float], seed: int) -> list[str]:
    """Returns a split for each row; rows of equal keys share a split, and `fractions` divide rare classes.

    Iterative stratification (Sechidis et al. 2011): the rows of the rarest class go to the split that lacks
    most rows of it, among the splits that lack rows at all; then the rows of the next class. Rows without a
    rare class are assigned by a hash of their key.
    """
    unit_of: dict[str, int] = {}
    unit_N = [unit_of.setdefault(key, len(unit_of)) for key in keys]
    names, sizes = list(unit_of), Counter(unit_N)
    unit_labels: dict[int, set[tuple[int, int]]] = defaultdict(set)
    for space, labels in enumerate(classes):
        for unit, row in zip(unit_N, labels, strict=True):
            unit_labels[unit].update((space, label) for label in row)
    members: dict[tuple[int, int], set[int]] = defaultdict(set)
    for unit in range(len(names)):
        for label in unit_labels[unit] or {NO_LABEL}:
            members[label].add(unit)
    rows = {label: sum(sizes[unit] for unit in units) for label, units in members.items()}
    rare_labels = {label for label in members if rows[label] < RARE or len(keys) < FEW}
    label_needs = {label: [share * rows[label] for share in fractions] for label in rare_labels}
    total = sum(sizes[unit] for unit in set().union(*(members[label] for label in rare_labels)))
    needs = [share * total for share in fractions]
    parts = [part for part, share in enumerate(fractions) if share > 0]
    split: dict[int, int] = {}
    for rare_label in sorted(rare_labels, key=lambda label: (rows[label], position(str(label), seed))):
        units = members[rare_label] - split.keys()
        for unit in sorted(units, key=lambda unit: (-sizes[unit], position(names[unit], seed))):
            best = max(
                (needs[part] > 0, round(label_needs[rare_label][part], 9), needs[part], -part, part)
                for part in parts
            )[-1]
            split[unit] = best
            needs[best] -= sizes[unit]
            for label in (unit_labels[unit] or {NO_LABEL}) & rare_labels:
                label_needs[label][best] -= sizes[unit]
    by_hash = {unit: assign(names[unit], seed, fractions) for unit in range(len(names)) if unit not in split}
    return [by_hash[unit] if unit in by_hash else SPLITS[split[unit]] for unit in unit_N]


def _note_contradictions(rows: RowKeys, classes: Classes) -> str:
    """Returns the end of a note on rows with the content of an earlier row but other labels, or ""."""
    first_row = dict.fromkeys(rows.contents, -1)
    count = 0
    for row, content in enumerate(rows.contents):
        if first_row[content] < 0:
            first_row[content] = row
        count += any(set(space[row]) != set(space[first_row[content]]) for space in classes)
    return f", {count:,} of them with other labels than the first of their kind" if count else ""


def _complete_splits(
    rows: RowKeys, keys: Sequence[str], classes: Classes, fractions: Sequence[float], seed: int
) -> list[str]:
    first_row: dict[str, int] = {}
    for row, group in enumerate(rows.groups):
        first = first_row.setdefault(group, row)
        if rows.splits[first] != rows.splits[row]:
            problem = f"a group is in two splits at {rows.places[first]} and {rows.places[row]}"
            raise UserError(problem, key="group", found=group, allowed="one split, or no column of splits")
    notes = []
    for index, split in ((1, "validation"), (2, "test")):
        n_train = rows.splits.count("train")
        if not n_train:
            raise UserError("no row is for training", key="split", found=sorted(set(rows.splits)))
        if split in rows.splits or not fractions[index]:
            continue
        share = fractions[index] / (fractions[0] + fractions[index])
        hold_out_rows(rows.splits, classes, keys, seed, share, split)
        if rows.splits.count(split) < share * n_train / 2:
            # In a small set a hash may draw far too few rows.
            rows.splits[:] = ["train" if name == split else name for name in rows.splits]
            hold_out_rows(rows.splits, classes, keys, seed, share, split, stratified=True)
        held_out = f"{rows.splits.count(split):,} of {n_train:,} training rows are held out for it"
        notes.append(f"no {split} rows are given: {held_out}")
    return notes + copies_between(rows.contents, rows.splits)


def least_names(names: Sequence[str], *keys: Sequence[Hashable]) -> list[str]:
    """Returns, for each row, the least name of all rows that chains of equal names or keys link to it."""
    # Imported here, since every command imports this module with the list of sources.
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    pairs = [pair for values in (names, *keys) for pair in _pair_with_first(values)]
    entries = np.asarray(pairs, dtype=np.int64).reshape(-1, 2)
    graph = coo_array((np.ones(len(entries)), (entries[:, 0], entries[:, 1])), shape=(len(names),) * 2)
    parts = connected_components(graph, directed=False)[1].tolist()
    least_name: dict[int, str] = {}
    for part, name in zip(parts, names, strict=True):
        least_name[part] = min(name, least_name.get(part, name))
    return [least_name[part] for part in parts]


def _pair_with_first(values: Sequence[Hashable]) -> list[tuple[int, int]]:
    """Pairs each row that repeats the value of an earlier row with the first row of that value."""
    firsts: dict[Hashable, int] = {}
    return [(row, firsts[value]) for row, value in enumerate(values) if firsts.setdefault(value, row) != row]
