"""What the multi-label text sources share: names of labels as class indices, and what is counted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from itertools import chain
from pathlib import Path

from mlcl.data.format import LabelSpace
from mlcl.data.sources.common.distribution import distinct

Names = Sequence[Collection[str]]
"""The labels of each row, by name."""


def space_of(classes: Iterable[str]) -> LabelSpace:
    """A multi-label space with these classes, in this order."""
    return LabelSpace(kind="multi_label", classes=tuple(classes))


def space_of_rows(rows: Names, file: Path) -> LabelSpace:
    """A multi-label space with the classes that occur, sorted. Raises UserError for none."""
    return space_of(distinct(sorted(set(chain.from_iterable(rows))), file))


def indices(rows: Names, space: LabelSpace) -> list[list[int]]:
    """The labels of each row as class indices, ascending, each once."""
    index = {name: i for i, name in enumerate(space.classes)}
    return [sorted({index[name] for name in row}) for row in rows]


def count(splits: Sequence[str], rows: Names) -> dict[str, float]:
    """Rows of each split, classes that occur, and labels a row: what `compare_counts` takes."""
    labels = sum(len(set(row)) for row in rows)
    classes = len(set(chain.from_iterable(rows)))
    return Counter(splits) | {"classes": classes, "labels a row": labels / max(1, len(rows))}
