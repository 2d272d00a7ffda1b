"""The hierarchy above a label space.

Shapes: N rows, C classes of the label space, H levels from the coarsest to the label space itself.
"""

from __future__ import annotations

import torch
from torch import Tensor

from mlcl.data import Dataset, DatasetInfo, LabelSpace, Split


def parents(dataset: Dataset, labels: str) -> dict[str, Tensor]:
    """For every level above `labels` in a hierarchy, the parent of each class (C,), -1 unknown.

    Read off the training rows. Empty where `labels` is no level of a hierarchy of single spaces.
    """
    found: dict[str, Tensor] = {}
    train = dataset.split("train")
    for space in dataset.info.label_spaces.values():
        if labels in space.levels and dataset.info.space(labels).kind == "single":
            for level in space.levels[: space.levels.index(labels)]:
                found[level] = _parent_of(train, labels, level, dataset.info.space(labels).n_classes)
    return found


def hierarchy_of(info: DatasetInfo, labels: str) -> LabelSpace | None:
    """The first hierarchy in which `labels` has coarser levels; None where there is none."""
    spaces = (space for space in info.label_spaces.values() if labels in space.levels[1:])
    return next(spaces, None)


def paths(dataset: Dataset, labels: str) -> Tensor | None:
    """The class of each class of `labels` at every level of its hierarchy (C, H), the coarsest first.

    None where `labels` is the coarsest level or in no hierarchy. Of multi-label levels the data set tells the
    parents, of single ones the training rows; a class whose parent is not known gets one of its own.
    """
    space = hierarchy_of(dataset.info, labels)
    if space is None:
        return None
    above = space.levels[: space.levels.index(labels)]
    known = parents(dataset, labels)
    level_C = torch.arange(dataset.info.space(labels).n_classes)
    found = [level_C]
    for number, level in reversed(list(enumerate(above))):
        if space.parents:
            level_C = torch.tensor(space.parents[number])[level_C]
        else:
            own_C = dataset.info.space(level).n_classes + torch.arange(len(level_C))
            level_C = torch.where(known[level] >= 0, known[level], own_C)
        found.insert(0, level_C)
    return torch.stack(found, dim=1)


def _parent_of(train: Split, labels: str, level: str, n_classes: int) -> Tensor:
    fine_N, coarse_N = train.labels(labels), train.labels(level)
    assert isinstance(fine_N, Tensor)
    assert isinstance(coarse_N, Tensor)
    known_N = fine_N >= 0
    parent_C = torch.full((n_classes,), -1)
    parent_C[fine_N[known_N]] = coarse_N[known_N]
    return parent_C
