"""Chooses the rows of a split that a plot shows, grouped by a few classes, and describes them as text.

Shapes: N rows, C classes of the classifier.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from mlcl.data import Split, class_parents, subset
from mlcl.errors import UserError, did_you_mean
from mlcl.evaluation.tasks import Array, array
from mlcl.labels import LabelRows
from mlcl.training.job_data import JobData

HANDFUL = 5
"""The number of classes that a plot shows by default."""
FIGURES = {
    "mlcl-figure3": ("camel", "cattle", "chimpanzee", "kangaroo", "bottle"),
    "mlcl-figure5": ("apple", "mushroom", "orange", "pear", "sweet_pepper", "cattle"),
    "mlcl-figure6": ("orchid", "poppy", "rose", "sunflower", "tulip", "cattle"),
    "mlcl-figure7": ("bottle", "bowl", "can", "cup", "mouse"),
    "mlcl-figure8": ("bed", "chair", "couch", "table", "wardrobe", "spider"),
}
"""The CIFAR-100 classes in the t-SNE figures of the MLCL paper; the last one is of another superclass. The
paper names all classes of figures 3 and 7; of the other figures it names only the superclass, of which all
classes are taken here."""
SEVERAL = "several of these"
NONE = "no label"


@dataclass(frozen=True, eq=False)
class RowGroup:
    """The rows of a class: its name, the index of its colour, and the indices of the rows in the split."""

    name: str
    colour: int
    rows: Array


def row_groups(job_data: JobData, split: Split, classes: Sequence[str] = ()) -> tuple[RowGroup, ...]:
    """Returns the groups of rows of `classes`; if it is empty, of up to `HANDFUL` frequent classes.

    A key of `FIGURES` among `classes` stands for the classes of that figure.

    By default, single-label tasks have the most frequent classes; in a hierarchy those of the largest
    superclass and at least one of another, with one colour for each superclass. For multi-label tasks a group
    has the rows with exactly one of the most frequent labels, and a last group those with several of them.
    For aspects, groups are the ratings (all that occur) of `overall`, or else of the first aspect. Other rows
    are in no group. Raises UserError for an unknown class.
    """
    name = picture_labels(job_data)
    space = job_data.dataset.info.space(name)
    indices = []
    for class_name in (class_name for choice in classes for class_name in FIGURES.get(choice, (choice,))):
        if class_name not in space.classes:
            problem = f"no such class{did_you_mean(class_name, space.classes)}"
            raise UserError(problem, key="--class", found=class_name, allowed=space.classes)
        indices.append(space.classes.index(class_name))
    labels = split.labels(name)
    if isinstance(labels, LabelRows):
        return _group_by_label(labels, space.classes, indices)
    levels = class_parents(job_data.dataset, name)
    class_N = array(labels)
    if not levels:
        candidates = _frequent_classes(class_N, space.n_classes)
        if job_data.task == "aspects":
            aspect = name.rpartition(".")[2]
            return _group_by_class(
                class_N, indices or sorted(candidates), [f"{aspect} {r}" for r in space.classes]
            )
        return _group_by_class(class_N, indices or candidates[:HANDFUL], space.classes)
    level, parent_C = list(levels.items())[-1]
    shown_indices = indices or _related_classes(class_N, array(parent_C))
    parent_names = [f"{level} {parent}" for parent in job_data.dataset.info.space(level).classes]
    return _group_by_superclass(class_N, shown_indices, space.classes, array(parent_C), parent_names)


def picture_labels(job_data: JobData) -> str:
    """Returns the name of the classifier's label space, by which rows are grouped.

    For aspects, `.` and an aspect are appended: `overall`, or else the first one.
    """
    name = job_data.job.objective.classifier.labels
    aspects = job_data.dataset.info.space(name).aspects
    if not aspects:
        return name
    overall = [aspect for aspect in aspects if aspect.lower() == "overall"]
    return f"{name}.{(overall or aspects)[0]}"


def sample(job_data: JobData, split: Split, groups: Sequence[RowGroup], cap: int, seed: int) -> Array:
    """Returns the row indices of all groups, ascending; if more than `cap`, a stratified sample of `cap`."""
    rows = np.unique(np.concatenate([group.rows for group in groups] or [np.empty(0, np.int64)]))
    if len(rows) <= cap:
        return rows
    sample_split = subset(split.take(torch.from_numpy(rows)), picture_labels(job_data), n=cap, seed=seed)
    assert isinstance(sample_split.index, Tensor)
    return np.sort(array(sample_split.index))


def _frequent_classes(class_N: Array, n_classes: int) -> list[int]:
    """Returns the classes that occur, most frequent first; equally frequent ones in their order."""
    count_C = np.bincount(class_N[class_N >= 0], minlength=n_classes)
    order = np.argsort(-count_C, kind="stable")
    return [int(c) for c in order if count_C[c]]


def _related_classes(class_N: Array, parent_C: Array) -> list[int]:
    """Returns up to `HANDFUL` frequent classes: of the largest superclass, then at least one of another."""
    candidates = _frequent_classes(class_N, len(parent_C))
    known_N = class_N[class_N >= 0]
    largest = np.bincount(parent_C[known_N][parent_C[known_N] >= 0], minlength=1).argmax()
    family = [c for c in candidates if parent_C[c] == largest]
    others = [c for c in candidates if parent_C[c] != largest]
    family = family[: HANDFUL - bool(others)]
    return family + others[: HANDFUL - len(family)]


def _group_by_class(
    class_N: Array, classes: Sequence[int], names: Sequence[str], colours: Sequence[int] | None = None
) -> tuple[RowGroup, ...]:
    """Returns a group for each of `classes`; by default each has a colour of its own."""
    return tuple(
        RowGroup(names[c], colour, np.flatnonzero(class_N == c))
        for c, colour in zip(classes, colours or range(len(classes)), strict=True)
    )


def _group_by_superclass(
    class_N: Array, classes: Sequence[int], names: Sequence[str], parent_C: Array, parent_names: Sequence[str]
) -> tuple[RowGroup, ...]:
    parents = [int(parent_C[c]) for c in classes]
    colours = list(dict.fromkeys(parents))
    groups = _group_by_class(class_N, classes, names, [colours.index(parent) for parent in parents])
    return tuple(
        replace(group, name=f"{group.name} ({parent_names[parent]})") if parent >= 0 else group
        for parent, group in zip(parents, groups, strict=True)
    )


def _group_by_label(labels: LabelRows, names: Sequence[str], indices: Sequence[int]) -> tuple[RowGroup, ...]:
    columns, row_V = array(labels.columns), array(labels.row_index())
    classes = indices or _frequent_classes(columns, labels.width)[:HANDFUL]
    count_N = np.bincount(row_V[np.isin(columns, classes)], minlength=len(labels))
    groups = [
        RowGroup(names[c], colour, row_V[(columns == c) & (count_N[row_V] == 1)])
        for colour, c in enumerate(classes)
    ]
    shared_rows = np.flatnonzero(count_N > 1)
    return (*groups, RowGroup(SEVERAL, len(classes), shared_rows)) if len(shared_rows) else tuple(groups)


def row_texts(job_data: JobData, split: Split, rows: Array) -> list[str]:
    """Returns id and labels of each row as text, such as `id7: a, b` or `id7: rooms 3, value 4`."""
    ids = split.ids
    return [f"{ids[row]}: {text}" for row, text in zip(rows, label_texts(job_data, split, rows), strict=True)]


def label_texts(job_data: JobData, split: Split, rows: Array) -> list[str]:
    """Returns the target labels of each of the rows as text, such as `a, b` or `rooms 3, value 4`."""
    space = job_data.dataset.info.space(job_data.job.objective.classifier.labels)
    targets = job_data.targets(split)
    index = torch.from_numpy(rows)
    if isinstance(targets, LabelRows):
        names = [[space.classes[c] for c in row] for row in targets.take(index).lists()]
    elif job_data.task == "single":
        names = [[space.classes[c]] if c >= 0 else [] for c in array(targets[index])]
    else:
        aspects, scale = space.aspects, space.scale
        ratings = [zip(aspects, row, strict=True) for row in array(targets[index])]
        names = [[f"{aspect} {scale[c]:g}" for aspect, c in row if c >= 0] for row in ratings]
    return [", ".join(row_names) or NONE for row_names in names]
