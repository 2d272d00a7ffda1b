"""Notes on suspicious contents of a sound data set: copies, twins, texts that name their label.

Shapes: N rows, L labels, E stored entries, H names found.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate

import numpy as np
from numpy.typing import NDArray

from mlcl.data.dataset import Dataset
from mlcl.data.images import in_threads
from mlcl.data.label_audit import ENOUGH, LINES, SHOWN, LabelTable, percent
from mlcl.data.split_assignment import copies_between, image_digest, twin_of_words, words_of
from mlcl.labels import LabelRows

LETTERS = 3
"""Letters of the shortest name that is looked for."""
OFTEN, SELDOM = 0.9, 0.1
"""Share of the rows of a class, and of the others, whose texts have its name."""
TWINS = 0.01
"""Share of twins that is told of."""


def content_notes(data: Dataset, tables: Sequence[LabelTable]) -> list[str]:
    """Notes on copies, twins and texts that name their class."""
    splits = list(tables[0].rows)
    if data.info.modality == "text":
        names = Names(tables)
        read = {split: ReadTexts.of(data.split(split).texts(), names) for split in splits}
        copies = {split: each.copies.tolist() for split, each in read.items()}
        return [*_copies(copies), *twins(read), *leaks(read, names)]
    if data.info.modality == "image":
        return _copies({s: list(in_threads(image_digest, data.split(s).images())) for s in splits})
    return _copies({s: [vector.tobytes() for vector in data.split(s).vectors()] for s in splits})


def _copies(contents: dict[str, list[bytes]] | dict[str, list[int]]) -> list[str]:
    rows = [(content, split) for split, own in contents.items() for content in own]
    return copies_between(*zip(*rows, strict=True))


class Names:
    """Finds in a text the names of classes, as whole words. They are numbered through all `tables`."""

    def __init__(self, tables: Sequence[LabelTable]) -> None:
        self.tables = [table for table in tables if not table.is_aspect]
        self.first = list(accumulate((table.space.n_classes for table in self.tables), initial=0))
        classes = [name for table in self.tables for name in table.space.classes]
        names = {number: words_of(name.replace("_", " ")) for number, name in enumerate(classes)}
        long = {n: name for n, name in names.items() if sum(map(str.isalpha, name)) >= LETTERS}
        often = Counter(word for name in long.values() for word in set(name.split()))
        self._of_word: dict[str, list[tuple[int, str]]] = {}
        for number, name in long.items():
            # Under the rarest of its words, so that few names are compared with each text.
            rarest = min(name.split(), key=lambda word: often[word])
            self._of_word.setdefault(rarest, []).append((number, f" {name} "))

    def within(self, words: str) -> list[int]:
        """The numbers of the names in the words of a text."""
        if not self._of_word:
            return []
        text = f" {words} "
        found = self._of_word.keys() & set(words.split())
        return [number for word in found for number, name in self._of_word[word] if name in text]


@dataclass(frozen=True)
class ReadTexts:
    """Of each text of a split a hash of its words and of its twin form; the row and number of each name."""

    copies: NDArray[np.int64]
    twins: NDArray[np.int64]
    row_H: NDArray[np.int64]
    name_H: NDArray[np.int64]

    @classmethod
    def of(cls, texts: Iterable[str], names: Names) -> ReadTexts:
        """Reads each text once."""
        copies, twins, rows, found = (array("q") for _ in range(4))
        for row, text in enumerate(texts):
            words = words_of(text)
            copies.append(hash(words))
            twins.append(hash(twin_of_words(words)))
            for number in names.within(words):
                rows.append(row)
                found.append(number)
        return cls(*(np.array(values, dtype=np.int64) for values in (copies, twins, rows, found)))


def twins(read: dict[str, ReadTexts]) -> list[str]:
    """The share of rows of validation and test with a twin in train; copies are no twins."""
    train, told = read["train"], []
    for split, own in read.items():
        is_twin_N = np.isin(own.twins, train.twins) & ~np.isin(own.copies, train.copies)
        if split != "train" and len(is_twin_N) >= ENOUGH and is_twin_N.mean() >= TWINS:
            told.append(f"{percent(is_twin_N.mean())} of {split}")
    what = "a text that is equal but for numbers or a side"
    return [f"{' and '.join(told)} rows have a twin in train: {what}"] if told else []


def leaks(read: dict[str, ReadTexts], names: Names) -> list[str]:
    """Classes that their rows' texts name nearly always, and other rows' texts seldom."""
    lines = []
    for table, first in zip(names.tables, names.first, strict=False):
        found = _leaks(table, read, first)
        told = [
            f"{name} is in {percent(inside)} of its rows and {percent(outside)} of the others"
            for name, inside, outside in found[:SHOWN]
        ]
        more = f" (and {len(found) - SHOWN:,} more)" if len(found) > SHOWN else ""
        lines += [f"{table.name}: texts name their class: {', '.join(told)}{more}"] if found else []
    return lines[:LINES]


def _leaks(table: LabelTable, read: dict[str, ReadTexts], first: int) -> list[tuple[str, float, float]]:
    """Each such class, the share of its rows with its name, and the share of the others."""
    width, sizes = table.space.n_classes, int(table.sizes.sum())
    has_L, named_L, inside_L = table.counts.sum(0), np.zeros(width), np.zeros(width)
    for split, rows in table.rows.items():
        own_H = (read[split].name_H >= first) & (read[split].name_H < first + width)
        row_H, label_H = read[split].row_H[own_H], read[split].name_H[own_H] - first
        named_L += np.bincount(label_H, minlength=width)
        inside_L += np.bincount(label_H[_has(rows, row_H, label_H)], minlength=width)
    own_L, other_L = inside_L / np.maximum(has_L, 1), (named_L - inside_L) / np.maximum(sizes - has_L, 1)
    told_L = (has_L >= ENOUGH) & (has_L < sizes) & (own_L >= OFTEN) & (other_L < SELDOM)
    return [(table.space.classes[i], own_L[i], other_L[i]) for i in np.flatnonzero(told_L)]


def _has(rows: LabelRows, row_H: NDArray[np.int64], label_H: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Whether each of these rows has the label named."""
    key_E = (rows.row_index() * rows.width + rows.columns).numpy()  # ascending
    key_H = row_H * rows.width + label_H
    place_H = np.searchsorted(key_E, key_H)
    has_H: NDArray[np.bool_] = np.append(key_E, -1)[place_H] == key_H
    return has_H
