"""The three kinds of task, their targets as arrays, and what metrics need to know about labels and rows.

Shapes: N rows, C classes, L labels (or classes), A aspects, H levels of a hierarchy.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal, get_args

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from mlcl.labels import LabelRows

Task = Literal["single", "multi_label", "aspects"]
"""The kind of task. Probabilities are (N, C) for `single`, (N, L) for `multi_label` and (N, A, C) for
`aspects`."""

Targets = Tensor | LabelRows
"""The targets of N rows: classes (N,) int64, label rows, or classes (N, A) int64. An unknown class is -1; it
is left out everywhere, as are the unknown entries of label rows."""

Array = NDArray[Any]

ROUNDING = 1e-5
"""The distance from 0 and 1 at which a number is still a rounded probability, and not a logit."""

BANDS = ("head", "medium", "tail")


@dataclass(frozen=True)
class LabelFacts:
    """Frequency bands of labels, and classes in a hierarchy, which some metrics need; None if not available.

    Attributes:
        band: The frequency band of each label (L,), for aspects (A, L), int64, as its index in `BANDS`.
        path: The class of each label at every level of a hierarchy (L, H) int64, the coarsest first and the
            label itself last.
        row_path: Each row's own classes at these levels (N, H) int64, -1 if unknown; without it the path of
            the row's target is used.
    """

    band: Array | None = None
    path: Array | None = None
    row_path: Array | None = None

    def of_aspect(self, aspect: int) -> LabelFacts:
        """Returns the bands of one aspect's classes, with everything else unchanged."""
        return self if self.band is None or self.band.ndim == 1 else replace(self, band=self.band[aspect])

    def of_rows(self, rows: Array) -> LabelFacts:
        """Returns the facts with `row_path` of some rows only, given as a mask (N,) or as row numbers."""
        return self if self.row_path is None else replace(self, row_path=self.row_path[rows])

    def in_band(self, name: str) -> Array:
        """Returns whether each label is in the band of this name (L,). Raises ValueError without `band`."""
        if self.band is None:
            raise ValueError("frequency bands need the labels' training counts")
        return np.asarray(self.band == BANDS.index(name))

    def paths(self) -> Array:
        """Returns `path`. Raises ValueError if it is None."""
        if self.path is None:
            raise ValueError("this metric needs the hierarchy above the labels")
        return self.path


NO_FACTS = LabelFacts()


def frequency_bands(counts: Array, bounds: tuple[int, int]) -> Array:
    """Returns the band of each label (...), as its index in `BANDS`, from its number of training rows (...).

    With `bounds` (a, b), a label with fewer than a rows is in the tail, one with more than b in the head.
    Source: Liu et al. 2019, Large-scale long-tailed recognition (few-shot below 20, many-shot above 100).
    """
    few, many = bounds
    return np.where(counts > many, 0, np.where(counts < few, 2, 1))


def check_task(task: str) -> None:
    """Raises ValueError for anything but a `Task`."""
    if task not in get_args(Task):
        raise ValueError(f"unknown task {task!r}; allowed: {', '.join(get_args(Task))}")


def check_tensor(value: object) -> None:
    """Raises TypeError for anything but a tensor."""
    if not isinstance(value, Tensor):
        raise TypeError(f"not a tensor; found: {type(value).__name__}; allowed: torch.as_tensor(...)")


def check_probabilities(p: Array) -> None:
    """Raises ValueError for numbers that are no probabilities, such as logits."""
    if not np.isfinite(p).all():
        raise ValueError("probabilities are not finite")
    if p.min(initial=0) < -ROUNDING or p.max(initial=1) > 1 + ROUNDING:
        raise ValueError(f"probabilities are not within 0 and 1; found: {p.min():.3g} to {p.max():.3g}")


def array(tensor: Tensor) -> Array:
    """Returns a tensor's values as a NumPy array, those of bfloat16, which NumPy lacks, as float32.

    Raises TypeError for anything but a tensor.
    """
    check_tensor(tensor)
    values = tensor.detach().cpu()
    result: Array = (values.float() if values.dtype == torch.bfloat16 else values).numpy()
    return result


def as_classes(targets: Targets) -> Array:
    """Returns class targets as an int64 array.

    Raises TypeError for anything but a tensor, and ValueError for numbers that are not whole or below -1.
    """
    if not isinstance(targets, Tensor):
        raise TypeError(f"this task takes a tensor of classes; found: {type(targets).__name__}")
    classes = array(targets)
    if classes.dtype.kind not in "iub" or classes.min(initial=0) < -1:
        actual = classes.min() if classes.dtype.kind == "i" else classes.dtype
        raise ValueError(f"classes must be integers, -1 (unknown) or more; found: {actual}")
    return classes.astype(np.int64)


def as_rows(targets: Targets) -> LabelRows:
    """Returns targets that are label rows, on the CPU. Raises TypeError for anything else."""
    if not isinstance(targets, LabelRows):
        raise TypeError(f"label rows are needed, see mlcl.labels; found: {type(targets).__name__}")
    return targets.to("cpu")


def known_entries(rows: LabelRows) -> Array | None:
    """Returns whether each entry is known (N, L); None if all are known."""
    known_NL = rows.known()
    return None if known_NL is None else array(known_NL)


def as_label_sets(targets: Targets, n_classes: int) -> LabelRows:
    """Returns targets as label sets: each class, or each class of each aspect, becomes one label.

    All labels of an aspect without a class are unknown.
    """
    if isinstance(targets, LabelRows):
        return targets.to("cpu")
    if targets.ndim == 1:
        return LabelRows.from_classes(targets.cpu(), n_classes)
    class_NA = targets.cpu()
    sets = LabelRows.from_dense(functional.one_hot(class_NA + 1, n_classes + 1)[..., 1:].flatten(1))
    missing_NL = (class_NA < 0).repeat_interleave(n_classes, 1)
    return replace(sets, unknown=LabelRows.from_dense(missing_NL)) if missing_NL.any() else sets


def known_rows(task: Task, targets: Targets) -> Array:
    """Returns whether each row has a known target (N,); for label rows, whether any entry is known."""
    if task == "multi_label":
        known_NL = known_entries(as_rows(targets))
        return np.ones(len(targets), dtype=bool) if known_NL is None else np.asarray(known_NL.any(axis=1))
    is_known = np.asarray(as_classes(targets) >= 0)
    return is_known if task == "single" else np.asarray(is_known.any(axis=1))
