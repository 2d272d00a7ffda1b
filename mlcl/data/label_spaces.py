"""Multi-label spaces: class indices of rows, counts, and the parents of classes in a hierarchy."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import chain, pairwise
from pathlib import Path

from mlcl.data.format import LabelSpace
from mlcl.errors import UserError

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


def distinct(classes: Iterable[str], file: Path) -> tuple[str, ...]:
    """Names of classes, in their order. Raises UserError for none and for one that comes twice."""
    counts = Counter(classes)
    if not counts:
        raise UserError("names no class", file=file)
    if twice := [name for name, count in counts.items() if count > 1]:
        raise UserError("names a class twice", file=file, found=twice)
    return tuple(counts)


Pairs = Iterable[tuple[str, str]]
"""A class and one below it, by name."""
Rows = Sequence[Sequence[int]]
"""The class indices of each row."""


def hierarchy_of(
    pairs: Sequence[Pairs],
    levels: Sequence[str],
    spaces: Mapping[str, LabelSpace],
    file: Path,
    key: str | None = None,
) -> LabelSpace:
    """The hierarchy through `levels`, coarse to fine, with the pairs of each level but the first.

    Raises UserError with `file` and `key` for a class with two parents, or with none among the classes.
    """
    parents = []
    for (coarse, fine), its in zip(pairwise(levels), pairs, strict=True):
        number = {name: i for i, name in enumerate(spaces[coarse].classes)}
        parent_of: dict[str, str] = {}
        for parent, name in its:
            if parent_of.setdefault(name, parent) != parent:
                problem = f"{name} of {fine} has two parents in {coarse}"
                raise UserError(problem, file=file, key=key, found=[parent_of[name], parent])
        for name in spaces[fine].classes:
            if parent_of.get(name) not in number:
                problem = f"{name} of {fine} has no parent in {coarse}"
                raise UserError(problem, file=file, key=key, found=parent_of.get(name), allowed=list(number))
        parents.append(tuple(number[parent_of[name]] for name in spaces[fine].classes))
    return LabelSpace(kind="hierarchy", levels=tuple(levels), parents=tuple(parents))


def pairs_of_paths(paths: Sequence[Sequence[str]]) -> list[Pairs]:
    """From the path of each finest class, coarse to fine."""
    return [list(pairwise_at) for pairwise_at in zip(*(pairwise(path) for path in paths), strict=True)]


def paths_in_file(file: Path, levels: Sequence[str], classes: Iterable[str]) -> list[list[str]]:
    """The paths of these finest classes, from JSON: finest class to level to class.

    Raises UserError for a file that is none, and for a class or a level that it lacks.
    """
    try:
        tree = json.loads(file.read_text(encoding="utf-8"))
        return [[*(str(tree[name][level]) for level in levels[:-1]), name] for name in classes]
    except KeyError as error:
        problem = "has no such class, or not its class at each level"
        raise UserError(problem, file=file, found=error.args[0], allowed=list(levels[:-1])) from None
    except (OSError, ValueError, RecursionError, TypeError) as error:
        problem = "not JSON that says for each finest class its class at each level"
        raise UserError(problem, file=file, found=error) from None


def pairs_in_rows(fine_rows: Rows, coarse_rows: Rows, fine: LabelSpace, coarse: LabelSpace) -> Pairs:
    """The class that all rows with a finer class have, where it is one: its parent."""
    found: dict[int, set[int]] = {}
    for fine_labels, coarse_labels in zip(fine_rows, coarse_rows, strict=True):
        for label in fine_labels:
            found.setdefault(label, set(coarse_labels)).intersection_update(coarse_labels)
    for label, candidates in found.items():
        if len(candidates) == 1:
            yield coarse.classes[min(candidates)], fine.classes[label]
