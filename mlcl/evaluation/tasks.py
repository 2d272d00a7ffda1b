"""The three kinds of task: targets as arrays, and facts about labels and rows beside a prediction.

Shapes: N rows, C classes, L labels (or classes), A aspects, H levels of a hierarchy.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
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

BANDS = ("head", "medium", "tail")


@dataclass(frozen=True)
class LabelFacts:
    """Facts about labels and rows that some metrics need; None where they are not known.

    `band` (L,) int64, for aspects (A, L), is the frequency band of each label as its index in `BANDS`. `path`
    (L, H) int64 is the class of each label at every level of a hierarchy, the coarsest first and the label
    itself last. `row_path` (N, H) int64 are the rows' own classes at these levels, -1 missing; without it the
    path of each row's target counts.
    """

    band: Array | None = None
    path: Array | None = None
    row_path: Array | None = None

    def of_aspect(self, aspect: int) -> LabelFacts:
        """The facts about the classes of one aspect."""
        return self if self.band is None or self.band.ndim == 1 else replace(self, band=self.band[aspect])

    def of_rows(self, rows: Array) -> LabelFacts:
        """The facts about some of the rows, given by a mask (N,) or their numbers."""
        return self if self.row_path is None else replace(self, row_path=self.row_path[rows])

    def in_band(self, name: str) -> Array:
        """Whether each label is in a band (L,). Raises ValueError where the bands are not known."""
        if self.band is None:
            raise ValueError("frequency bands need the labels' training counts")
        return np.asarray(self.band == BANDS.index(name))

    def paths(self) -> Array:
        """`path`. Raises ValueError where it is not known."""
        if self.path is None:
            raise ValueError("this metric needs the hierarchy above the labels")
        return self.path


NO_FACTS = LabelFacts()


def frequency_bands(counts: Array, bounds: tuple[int, int]) -> Array:
    """The bands (...) of labels from their numbers of training rows (...).

    With `bounds` (a, b), a label with fewer than a rows is in the tail, one with more than b in the head.
    Source: Liu et al. 2019, Large-scale long-tailed recognition (few-shot below 20, many-shot above 100).
    """
    few, many = bounds
    return np.where(counts > many, 0, np.where(counts < few, 2, 1))


def array(tensor: Tensor) -> Array:
    """A tensor's values on the CPU."""
    values: Array = tensor.detach().cpu().numpy()
    return values


def as_classes(targets: Targets) -> Array:
    """Class targets as int64. Raises TypeError for label rows."""
    if isinstance(targets, LabelRows):
        raise TypeError("this task takes a tensor of classes, not label rows")
    return array(targets).astype(np.int64)


def as_rows(targets: Targets) -> LabelRows:
    """Label rows on the CPU. Raises TypeError for classes."""
    if not isinstance(targets, LabelRows):
        raise TypeError("multi_label takes label rows, not a tensor")
    return targets.to("cpu")


def known_entries(rows: LabelRows) -> Array | None:
    """Whether each entry is known (N, L); None where all are known."""
    known_NL = rows.known()
    return None if known_NL is None else array(known_NL)


def as_label_sets(targets: Targets, n_classes: int) -> LabelRows:
    """Targets as label sets: each class, or each class of each aspect, becomes one label."""
    if isinstance(targets, LabelRows):
        return targets.to("cpu")
    if targets.ndim == 1:
        return LabelRows.from_classes(targets.cpu(), n_classes)
    one_hot_NAC = functional.one_hot(targets.cpu() + 1, n_classes + 1)[..., 1:]
    return LabelRows.from_dense(one_hot_NAC.flatten(1))


def known_rows(task: Task, targets: Targets) -> Array:
    """Whether each row has a target (N,): for label sets, whether any entry of the row is known."""
    if task == "multi_label":
        known_NL = known_entries(as_rows(targets))
        return np.ones(len(targets), dtype=bool) if known_NL is None else np.asarray(known_NL.any(axis=1))
    known = np.asarray(as_classes(targets) >= 0)
    return known if task == "single" else np.asarray(known.any(axis=1))
