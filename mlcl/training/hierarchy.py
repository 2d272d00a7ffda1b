"""The hierarchy above a label space.

Shapes: N rows of a split, C classes of the label space, H levels from the coarsest to the label space itself.
"""

from __future__ import annotations

import torch
from torch import Tensor

from mlcl.data import Dataset, DatasetInfo, LabelSpace, Split, class_parents


def hierarchy_of(info: DatasetInfo, labels: str) -> LabelSpace | None:
    """The first hierarchy in which `labels` has coarser levels; None where there is none."""
    spaces = (space for space in info.label_spaces.values() if labels in space.levels[1:])
    return next(spaces, None)


def paths(dataset: Dataset, labels: str) -> Tensor | None:
    """The class of each class of `labels` at every level of its hierarchy (C, H), the coarsest first.

    None where `labels` is the coarsest level or in no hierarchy. Of multi-label levels the data set tells the
    parents, of single ones the rows (see `class_parents`); a class whose parent is not known gets one of its
    own.
    """
    space = hierarchy_of(dataset.info, labels)
    if space is None:
        return None
    above = space.levels[: space.levels.index(labels)]
    known = class_parents(dataset, labels)
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


def row_paths(split: Split, labels: str) -> Tensor | None:
    """The rows' own classes (N, H) at every level down to `labels`, the coarsest first, -1 missing.

    None where `labels` has no coarser levels of single labels.
    """
    space = hierarchy_of(split.info, labels)
    if space is None or space.parents:
        return None
    levels = [split.labels(level) for level in space.levels[: space.levels.index(labels) + 1]]
    return torch.stack([level for level in levels if isinstance(level, Tensor)], dim=1)
