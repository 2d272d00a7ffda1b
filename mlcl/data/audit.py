"""Finds suspicious labels and contents of a valid data set, in all rows of all splits, and returns notes.

Shapes: N rows, S splits, L labels, E stored entries.
"""

from __future__ import annotations

import re
import unicodedata
from array import array
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mlcl.data.columns import as_rows
from mlcl.data.dataset import Dataset
from mlcl.data.format import SPLITS, LabelSpace
from mlcl.data.images import in_threads
from mlcl.data.split_assignment import copies_between, image_digest, twin_of_words, words_of
from mlcl.labels import LabelRows

MAX_NAMES = 3
"""The most class names in a note; further ones are counted."""
MAX_NOTES = 4
"""The most notes of one kind; `label_notes` counts further ones."""
MIN_ROWS = 20
"""The least number of rows of a class, or of a split, whose fraction with a property is noted."""
MIN_ROWS_OF_A_CONSTANT = 200
"""The least number of rows of a data set in which a class that nearly all rows have is noted."""
NEARLY_CONSTANT = 0.99
"""The fraction of the rows from which on a class counts as nearly constant."""
CHANCE = 1e-6
"""A finding is noted only if its probability by chance is below this."""
MIN_DIFFERENCE = 0.05
"""The smallest difference, between two splits, of the fraction of unlabelled rows that is noted."""
BOUNDARY = re.compile(r"\s*[./_:>-]+\s*(?=\w)")
MARKS = " .,;:!?'\"`()[]{}\u00ab\u00bb\u2018\u2019\u201c\u201d\u201e"
"""Characters stripped from the ends of a class name; not `#`, `+` and `-`: C, C# and C++ are three names."""


@dataclass(frozen=True)
class LabelTable:
    """The labels of a label space or an aspect by split. `in_tree` is true for a level of a hierarchy."""

    name: str
    space: LabelSpace
    rows: dict[str, LabelRows]
    in_tree: bool

    @property
    def is_aspect(self) -> bool:
        """Whether the table is of an aspect, whose classes are points of a scale."""
        return "." in self.name

    @cached_property
    def sizes(self) -> NDArray[np.int64]:
        """The number of rows of each split (S,)."""
        return np.array([len(rows) for rows in self.rows.values()])

    @cached_property
    def unlabelled_counts(self) -> NDArray[np.int64]:
        """The number of rows without a label in each split (S,)."""
        return np.array([int((rows.counts() == 0).sum()) for rows in self.rows.values()])

    @cached_property
    def counts(self) -> NDArray[np.int64]:
        """The number of rows with each label in each split (S, L)."""
        return np.stack([self.count_of(split) for split in self.rows])

    def count_of(self, split: str) -> NDArray[np.int64]:
        """Returns the number of rows of a split with each label (L,); zeros for a split that has no rows."""
        if split not in self.rows:
            return np.zeros(self.space.n_classes, dtype=np.int64)
        return np.bincount(self.rows[split].columns, minlength=self.space.n_classes)

    def format_labels(self, labels: NDArray[np.int64]) -> str:
        """Formats the names of the classes `labels` (indices): the first `MAX_NAMES`, and how many more."""
        more = f" and {len(labels) - MAX_NAMES:,} more" if len(labels) > MAX_NAMES else ""
        return ", ".join(self.space.classes[label] for label in labels[:MAX_NAMES]) + more


def label_tables(data: Dataset) -> list[LabelTable]:
    """Returns a table for each single or multi-label space (also levels of hierarchies) and each aspect."""
    levels = {level for space in data.info.label_spaces.values() for level in space.levels}
    splits = [data.split(split) for split in SPLITS if data.info.rows.get(split)]
    tables = []
    for name, space in data.info.class_spaces().items():
        rows = {split.name: as_rows(split.labels(name), space) for split in splits}
        tables.append(LabelTable(name, space, rows, name in levels))
    return tables


def label_notes(tables: Sequence[LabelTable]) -> list[str]:
    """Returns notes on the labels: at most `MAX_NOTES` of each kind, and a count of the others."""
    notes = []
    for audit in (find_lookalikes, find_longer_names, find_split_labels, find_constants, find_unlabelled):
        lines = [line for table in tables for line in audit(table)]
        notes += lines[:MAX_NOTES]
        if len(lines) > MAX_NOTES:
            notes.append(f"likewise in {len(lines) - MAX_NOTES:,} more label spaces")
    return notes


def find_lookalikes(table: LabelTable) -> list[str]:
    """Returns a note on classes whose names are equal after `looks_of`, or an empty list; skips aspects."""
    if table.is_aspect:
        return []
    first_name: dict[str, str] = {}
    pairs = [
        f"{first_name[key]!a} and {name!a}"
        for name in table.space.classes
        if first_name.setdefault(key := looks_of(name), name) != name
    ]
    more = f" (and {len(pairs) - MAX_NAMES:,} more)" if len(pairs) > MAX_NAMES else ""
    return [f"{table.name}: {', '.join(pairs[:MAX_NAMES])} look alike{more}"] if pairs else []


def looks_of(name: str) -> str:
    """Normalises a name, so that case, Unicode form, blanks, and `MARKS` at its ends make no difference."""
    folded_name = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", name).casefold())
    visible_name = "".join(letter for letter in folded_name if unicodedata.category(letter) != "Cf")
    return " ".join(visible_name.split()).strip(MARKS) or name


def find_longer_names(table: LabelTable) -> list[str]:
    """Returns a note on classes whose name extends another class's, as cs.ir extends cs, or an empty list.

    The note is made only if some row has the longer class without the shorter one. Levels of a hierarchy are
    not checked, nor spaces in which all names are numbers: 1.5 is not a subclass of 1.
    """
    classes = table.space.classes
    if table.in_tree or all(name.replace(".", "", 1).isdecimal() for name in classes):
        return []
    index = {name: label for label, name in enumerate(classes)}
    shorter_L = np.array([_extended_class(name, index) for name in classes])
    longer_labels = np.flatnonzero(shorter_L >= 0)
    if not len(longer_labels):
        return []
    n_lacking = n_longer = 0
    for rows in table.rows.values():
        row_E, label_E = rows.row_index().numpy(), rows.columns.numpy()
        is_longer_E = shorter_L[label_E] >= 0
        required_E = row_E[is_longer_E] * len(classes) + shorter_L[label_E[is_longer_E]]
        lacking_E = required_E[~np.isin(required_E, row_E * len(classes) + label_E)]
        n_longer += len(np.unique(row_E[is_longer_E]))
        n_lacking += len(np.unique(lacking_E // len(classes)))
    if not n_lacking:
        return []
    name, short_name = classes[longer_labels[0]], classes[shorter_L[longer_labels[0]]]
    summary = f"{len(longer_labels):,} classes go on from another one, such as {name} from {short_name}"
    rule = f"a row with {name} has {short_name} only where it says so"
    return [f"{table.name}: {summary}: {rule}; {n_lacking:,} of {n_longer:,} such rows do not"]


def _extended_class(name: str, index: dict[str, int]) -> int:
    """Returns the index of the longest class name that `name` extends, as cs.ir extends cs; -1 for none."""
    hits = [index[name[: mark.start()]] for mark in BOUNDARY.finditer(name) if name[: mark.start()] in index]
    return hits[-1] if hits else -1


def find_split_labels(table: LabelTable) -> list[str]:
    """Returns a note if train and test share no class, or on classes that only one split has.

    A class is noted only if it has `MIN_ROWS` rows and chance hardly explains that one split has all.
    """
    counts_SL, splits = table.counts, list(table.rows)
    question = "does the label tell the split?"
    if {"train", "test"} <= set(splits):
        train_L, test_L = table.count_of("train") > 0, table.count_of("test") > 0
        if train_L.any() and test_L.any() and not (train_L & test_L).any():
            return [f"{table.name}: train and test have no class in common: {question}"]
    total_L, shares_S = counts_SL.sum(0), table.sizes / table.sizes.sum()
    findings = []
    for split, count_L, share in zip(splits, counts_SL, shares_S, strict=True):
        unlikely_L = total_L * np.log(share) < np.log(CHANCE)
        labels = np.flatnonzero((count_L == total_L) & (total_L >= MIN_ROWS) & unlikely_L)
        findings += [f"{table.format_labels(labels)} in {split} alone"] if len(labels) else []
    return [f"{table.name}: there is {'; '.join(findings)}: {question}"] if findings else []


def find_constants(table: LabelTable) -> list[str]:
    """Returns a note on classes that all rows, nearly all rows or no rows have, or an empty list."""
    total_L, rows = table.counts.sum(0), int(table.sizes.sum())
    rows -= int(table.unlabelled_counts.sum()) if table.space.kind == "single" else 0
    constants, absent = np.flatnonzero((total_L == rows) & (rows > 0)), np.flatnonzero(total_L == 0)
    frequent = np.flatnonzero(
        (total_L < rows) & (total_L >= NEARLY_CONSTANT * rows) & (rows >= MIN_ROWS_OF_A_CONSTANT)
    )
    subject = "every row" if rows == table.sizes.sum() else "every row with a label"
    findings = [f"{subject} has {table.format_labels(constants)}"] if len(constants) else []
    if len(frequent):
        share = format_percent(total_L[frequent].min() / rows)
        findings.append(f"{share} of rows or more have {table.format_labels(frequent)}")
    findings += [f"no row has {table.format_labels(absent)}"] if len(absent) and not table.is_aspect else []
    return [f"{table.name}: {'; '.join(findings)}"] if findings else []


def find_unlabelled(table: LabelTable) -> list[str]:
    """Returns a note on the fraction of rows without a label in each split, and whether splits differ."""
    if not table.unlabelled_counts.any():
        return []
    shares_S = table.unlabelled_counts / table.sizes
    shares_text = ", ".join(
        f"{format_percent(s)} of {split}" for split, s in zip(table.rows, shares_S, strict=True) if s
    )
    difference = ": the splits differ" if _has_different_shares(table.unlabelled_counts, table.sizes) else ""
    return [f"{table.name}: rows without a label are {shares_text}{difference}"]


def _has_different_shares(counts_S: NDArray[np.int64], sizes_S: NDArray[np.int64]) -> bool:
    """Whether `counts_S / sizes_S` differs between splits by `MIN_DIFFERENCE`, and by more than chance."""
    from scipy.stats import chi2_contingency

    shares_S = counts_S / sizes_S
    if np.ptp(shares_S) < MIN_DIFFERENCE:
        return False
    return bool(chi2_contingency([counts_S, sizes_S - counts_S]).pvalue < CHANCE)


def format_percent(share: float) -> str:
    """Formats a fraction in per cent; only exactly 0 and 1 are shown as 0 % and 100 %."""
    rounded = round(100 * share, 1)
    return f"{rounded if share in (0, 1) else min(max(rounded, 0.1), 99.9):.3g} %"


MIN_LETTERS = 3
"""The least number of letters of a class name that is searched for in texts."""
OFTEN, SELDOM = 0.9, 0.1
"""A class is noted if at least OFTEN of its own texts, and less than SELDOM of the others, have its name."""
MIN_TWINS = 0.01
"""The smallest fraction of rows with a twin that is noted."""


def content_notes(data: Dataset, tables: Sequence[LabelTable]) -> list[str]:
    """Returns notes on copies of training rows and, for texts, on twins and on class names in the texts."""
    splits = list(tables[0].rows)
    if data.info.modality == "text":
        names = Names(tables)
        texts_by_split = {split: ReadTexts.of(data.split(split).texts(), names) for split in splits}
        copies = {split: texts.copies.tolist() for split, texts in texts_by_split.items()}
        return [*_find_copies(copies), *find_twins(texts_by_split), *find_leaks(texts_by_split, names)]
    if data.info.modality == "image":
        return _find_copies({s: list(in_threads(image_digest, data.split(s).images())) for s in splits})
    return _find_copies({s: [vector.tobytes() for vector in data.split(s).vectors()] for s in splits})


def _find_copies(contents: dict[str, list[bytes]] | dict[str, list[int]]) -> list[str]:
    rows = [(content, split) for split, split_contents in contents.items() for content in split_contents]
    return copies_between(*zip(*rows, strict=True))


class Names:
    """Finds class names in texts, as whole words. Classes are numbered across all tables but aspects."""

    def __init__(self, tables: Sequence[LabelTable]) -> None:
        self.tables = [table for table in tables if not table.is_aspect]
        self.first = list(accumulate((table.space.n_classes for table in self.tables), initial=0))
        classes = [name for table in self.tables for name in table.space.classes]
        names = {number: words_of(name.replace("_", " ")) for number, name in enumerate(classes)}
        long_names = {n: name for n, name in names.items() if sum(map(str.isalpha, name)) >= MIN_LETTERS}
        word_counts = Counter(word for name in long_names.values() for word in set(name.split()))
        self._word_names: dict[str, list[tuple[int, str]]] = {}
        for number, name in long_names.items():
            # Names are indexed by their rarest word, so that few names are compared with each text.
            rarest_word = min(name.split(), key=lambda word: word_counts[word])
            self._word_names.setdefault(rarest_word, []).append((number, f" {name} "))

    def find_in(self, words: str) -> list[int]:
        """Returns the numbers of the classes whose names occur in `words`, the result of `words_of`."""
        if not self._word_names:
            return []
        text = f" {words} "
        indexed_words = self._word_names.keys() & set(words.split())
        return [number for word in indexed_words for number, name in self._word_names[word] if name in text]


@dataclass(frozen=True)
class ReadTexts:
    """Hashes of the words (`copies`) and the twin form (`twins`) of each text, and the class names in it.

    `named` is a sparse array of 0 and 1, with a row for each text and a column for each class of `Names`.
    """

    copies: NDArray[np.int64]
    twins: NDArray[np.int64]
    named: Any

    @classmethod
    def of(cls, texts: Sequence[str], names: Names) -> ReadTexts:
        """Computes the hashes and finds the names, reading each text once."""
        from scipy.sparse import csr_array

        copies, twins, columns, offsets = (array("q") for _ in range(4))
        offsets.append(0)
        for text in texts:
            words = words_of(text)
            copies.append(hash(words))
            twins.append(hash(twin_of_words(words)))
            columns.extend(names.find_in(words))
            offsets.append(len(columns))
        matrix = csr_array((np.ones(len(columns)), columns, offsets), shape=(len(texts), names.first[-1]))
        return cls(np.array(copies, dtype=np.int64), np.array(twins, dtype=np.int64), matrix)


def find_twins(read: dict[str, ReadTexts]) -> list[str]:
    """Returns a note on validation and test rows with the twin form, but not the words, of a training row."""
    train, findings = read["train"], []
    for split, texts in read.items():
        is_twin_N = np.isin(texts.twins, train.twins) & ~np.isin(texts.copies, train.copies)
        if split != "train" and len(is_twin_N) >= MIN_ROWS and is_twin_N.mean() >= MIN_TWINS:
            findings.append(f"{format_percent(is_twin_N.mean())} of {split}")
    definition = "a text that is equal but for numbers or a side"
    return [f"{' and '.join(findings)} rows have a twin in train: {definition}"] if findings else []


def find_leaks(read: dict[str, ReadTexts], names: Names) -> list[str]:
    """Returns notes on classes whose name is in nearly all texts of the class and in few other texts."""
    lines = []
    for table, offset in zip(names.tables, names.first, strict=False):
        leaks = _leaks(table, read, offset)
        findings = [
            f"{name} is in {format_percent(inside)} of its rows and {format_percent(outside)} of the others"
            for name, inside, outside in leaks[:MAX_NAMES]
        ]
        more = f" (and {len(leaks) - MAX_NAMES:,} more)" if len(leaks) > MAX_NAMES else ""
        lines += [f"{table.name}: texts name their class: {', '.join(findings)}{more}"] if leaks else []
    return lines[:MAX_NOTES]


def _leaks(table: LabelTable, texts: dict[str, ReadTexts], offset: int) -> list[tuple[str, float, float]]:
    """Returns (name, fraction of its rows with the name, fraction of other rows) of each class to note."""
    from scipy.sparse import csr_array

    width, total = table.space.n_classes, int(table.sizes.sum())
    size_L, named_L, inside_L = table.counts.sum(0), np.zeros(width), np.zeros(width)
    for split, rows in table.rows.items():
        named_NL = texts[split].named[:, offset : offset + width]
        has_NL = csr_array((np.ones(len(rows.columns)), rows.columns, rows.offsets), shape=(len(rows), width))
        named_L += named_NL.sum(0)
        inside_L += named_NL.multiply(has_NL).sum(0)
    own_L, other_L = inside_L / np.maximum(size_L, 1), (named_L - inside_L) / np.maximum(total - size_L, 1)
    leak_L = (size_L >= MIN_ROWS) & (size_L < total) & (own_L >= OFTEN) & (other_L < SELDOM)
    return [(table.space.classes[i], own_L[i], other_L[i]) for i in np.flatnonzero(leak_L)]
