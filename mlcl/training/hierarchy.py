"""Accuracy at the coarser levels of a hierarchy, by the parents of predicted classes.

Shapes: N rows, C classes of the classifier.
"""

from __future__ import annotations

import torch
from torch import Tensor

from mlcl.data import Dataset, Split


def parents(dataset: Dataset, labels: str) -> dict[str, Tensor]:
    """For every level above `labels` in a hierarchy, the parent of each class (C,), -1 unknown.

    Read off the training rows. Empty where `labels` is no level of a hierarchy.
    """
    found: dict[str, Tensor] = {}
    train = dataset.split("train")
    for space in dataset.info.label_spaces.values():
        if space.kind == "hierarchy" and labels in space.levels:
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


def coarse_accuracy(probabilities_NC: Tensor, split: Split, parents: dict[str, Tensor]) -> dict[str, float]:
    """`accuracy_<level>` of the predicted class's parent, over rows whose class there is known."""
    predicted_N = probabilities_NC.argmax(1)
    metrics: dict[str, float] = {}
    for level, parent_C in parents.items():
        target_N = split.labels(level)
        assert isinstance(target_N, Tensor)
        known_N = target_N >= 0
        if known_N.any():
            hit_N = parent_C[predicted_N[known_N]] == target_N[known_N]
            metrics[f"accuracy_{level}"] = float(hit_N.double().mean())
    return metrics
