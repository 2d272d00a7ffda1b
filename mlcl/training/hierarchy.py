"""The hierarchy above a label space.

Shapes: N rows, C classes of the label space.
"""

from __future__ import annotations

import torch
from torch import Tensor

from mlcl.data import Dataset, Split


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


def _parent_of(train: Split, labels: str, level: str, n_classes: int) -> Tensor:
    fine_N, coarse_N = train.labels(labels), train.labels(level)
    assert isinstance(fine_N, Tensor)
    assert isinstance(coarse_N, Tensor)
    known_N = fine_N >= 0
    parent_C = torch.full((n_classes,), -1)
    parent_C[fine_N[known_N]] = coarse_N[known_N]
    return parent_C
