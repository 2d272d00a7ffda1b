"""Which split a row goes to, where a source does not say: a seeded hash of its key."""

from __future__ import annotations

import hashlib
import heapq
import re
from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence
from functools import partial

from mlcl.data.format import SPLITS

FRACTIONS = (0.8, 0.1, 0.1)
"""Shares of train, validation and test."""
WORD = re.compile(r"\w+")
NUMBER = re.compile(r"\d+")
SIDE = re.compile(r"\b(?:left|right|bilateral|unspecified)\b ?")
FAR = 0.02
"""Difference between the wanted and the actual share of a split from which it is said."""


def words_of(text: str) -> str:
    """The words of a text in small letters, one space between; the text itself where it has none.

    As a key it is the same for two copies of a text, which keeps them out of two splits.
    """
    return " ".join(WORD.findall(text.casefold())) or text


def twin_form(text: str) -> str:
    """The words of a text, the same for texts that are equal but for numbers and words of a side (`SIDE`)."""
    return twin_of_words(words_of(text))


def twin_of_words(words: str) -> str:
    """The twin form of a text whose words are known."""
    return SIDE.sub("", NUMBER.sub("0", words)).strip() or words


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


def assign_validation(key: str, seed: int, share: float) -> str:
    """`validation` for a seeded share of the keys, else `train`."""
    return assign(key, seed, (1 - share, share, 0.0))


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


def keep_together(splits: list[str], keys: Sequence[str]) -> None:
    """Move rows to train, in place, that share their key with a training row."""
    trained = {key for key, split in zip(keys, splits, strict=True) if split == "train"}
    for row, key in enumerate(keys):
        if key in trained:
            splits[row] = "train"


def hold_out(
    splits: list[str],
    classes: Iterable[Sequence[Sequence[int]]],
    keys: Sequence[str],
    seed: int,
    share: float,
    to: str = "validation",
) -> None:
    """Turn a seeded share of the training rows to another split, in place; every class keeps a training row.

    `classes` holds, for each space, the class indices of each row. Rows of one key stay together. Only
    training rows are looked at: the test split stays as it was published.
    """
    train = [row for row, split in enumerate(splits) if split == "train"]
    own = [keys[row] for row in train]
    held = [assign(key, seed, (1 - share, share, 0.0)) for key in own]
    train_every_class(held, [[space[row] for row in train] for space in classes], own, seed)
    keep_together(held, own)
    for row, split in zip(train, held, strict=True):
        splits[row] = split if split == "train" else to


def shares_note(splits: Sequence[str], fractions: Sequence[float], reason: str) -> list[str]:
    """A sentence where the splits' shares of the rows are far from the wanted ones, or a split has no row."""
    counts = Counter(splits)
    shares = [counts[split] / max(1, len(splits)) for split in SPLITS]
    pairs = list(zip(shares, fractions, strict=True))
    if not any(abs(share - wanted) > FAR or (wanted > 0 and not share) for share, wanted in pairs):
        return []
    found = " / ".join(f"{100 * share:.1f}" for share in shares)
    asked = " / ".join(f"{100 * wanted:.3g}" for wanted in fractions)
    return [f"the splits have {found} % of the rows where {asked} were wanted: {reason}"]


def copies_between(contents: Iterable[Hashable], splits: Iterable[str]) -> list[str]:
    """A sentence on the rows of validation and test whose content, by its digest, a training row has, too."""
    rows = list(zip(contents, splits, strict=True))
    trained = {content for content, split in rows if split == "train"}
    found = Counter(split for content, split in rows if split != "train" and content in trained)
    told = ", ".join(f"{found[split]:,} of {split}" for split in SPLITS if found[split])
    return [f"rows with the content of a training row: {told}"] if told else []


def digest_of(content: str | bytes) -> bytes:
    """What two copies of a content share: of a text its words, whatever stands between."""
    data = words_of(content).encode("utf-8", "surrogatepass") if isinstance(content, str) else content
    return hashlib.sha256(data).digest()[:16]


def image_digest(data: bytes) -> bytes:
    """A digest of an encoded image's pixels, upright and in RGB; of its bytes where these are no image."""
    # Later than the module: every command reads the list of sources.
    from mlcl.data.images import upright

    try:
        image = upright(data)
    except Exception:  # a damaged image makes Pillow raise nearly anything
        return digest_of(data)
    return digest_of(b"%dx%d " % image.size + image.tobytes())


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
