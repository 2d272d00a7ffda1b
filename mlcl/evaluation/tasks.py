"""The three kinds of task, and their targets as arrays.

Shapes: N rows, C classes, L labels, A aspects.
"""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from mlcl.labels import LabelRows

Task = Literal["single", "multi_label", "aspects"]
"""Probabilities are (N, C) for `single`, (N, L) for `multi_label` and (N, A, C) for `aspects`."""

Targets = Tensor | LabelRows
"""Classes (N,) int64, label rows, or classes (N, A) int64; -1 is missing and left out everywhere, as are the
unknown entries of label rows."""

Array = NDArray[Any]


def array(tensor: Tensor) -> Array:
    """A tensor's values on the CPU."""
    values: Array = tensor.detach().cpu().numpy()
    return values


def as_classes(targets: Targets) -> Array:
    """Class targets as int64; raises TypeError for label rows."""
    if isinstance(targets, LabelRows):
        raise TypeError("this task takes a tensor of classes, not label rows")
    return array(targets).astype(np.int64)


def as_rows(targets: Targets) -> LabelRows:
    """Label rows on the CPU; raises TypeError for classes."""
    if not isinstance(targets, LabelRows):
        raise TypeError("multi_label takes label rows, not a tensor")
    return targets.to("cpu")


def known_entries(rows: LabelRows) -> Array | None:
    """Mask (N, L) bool of known entries; None where all are known."""
    known_NL = rows.known()
    return None if known_NL is None else array(known_NL)


def as_label_sets(targets: Targets, n_classes: int) -> LabelRows:
    """Targets as label sets: each of the classes, or each of the classes of each aspect, is one label."""
    if isinstance(targets, LabelRows):
        return targets.to("cpu")
    if targets.ndim == 1:
        return LabelRows.from_classes(targets.cpu(), n_classes)
    one_hot_NAC = functional.one_hot(targets.cpu() + 1, n_classes + 1)[..., 1:]
    return LabelRows.from_dense(one_hot_NAC.flatten(1))


def known_rows(task: Task, targets: Targets) -> Array:
    """Mask (N,) bool of rows with a target: of a multi-label set rows with any known entry."""
    if task == "multi_label":
        told_NL = known_entries(as_rows(targets))
        return np.ones(len(targets), dtype=bool) if told_NL is None else np.asarray(told_NL.any(axis=1))
    known = np.asarray(as_classes(targets) >= 0)
    return known if task == "single" else np.asarray(known.any(axis=1))
