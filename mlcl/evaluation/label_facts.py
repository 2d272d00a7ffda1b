"""What some metrics read of the labels beside a prediction: how frequent they are, and where in a hierarchy.

Shapes: N rows, L labels or classes, A aspects, H levels of a hierarchy.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from mlcl.evaluation.tasks import Array

BANDS = ("head", "medium", "tail")


@dataclass(frozen=True)
class LabelFacts:
    """`band` (L,) int64, of aspects (A, L): the frequency band of each label, by its place in `BANDS`.

    `path` (L, H) int64: the class of each label at every level of a hierarchy, the coarsest first and the
    label itself last. `row_path` (N, H) int64: the classes that the rows that are scored have themselves at
    these levels, -1 missing; without it those of each row's target. None where it is not known.
    """

    band: Array | None = None
    path: Array | None = None
    row_path: Array | None = None

    def of_aspect(self, aspect: int) -> LabelFacts:
        """Those of the classes of one aspect."""
        return self if self.band is None or self.band.ndim == 1 else replace(self, band=self.band[aspect])

    def of_rows(self, rows: Array) -> LabelFacts:
        """Facts of some of the rows, given by a mask (N,) or their numbers."""
        return self if self.row_path is None else replace(self, row_path=self.row_path[rows])

    def in_band(self, name: str) -> Array:
        """Which labels are in a band (L,) bool. Raises ValueError where the bands are not known."""
        if self.band is None:
            raise ValueError("frequency bands need the labels' training counts")
        return np.asarray(self.band == BANDS.index(name))

    def paths(self) -> Array:
        """`path`. Raises ValueError where there is none."""
        if self.path is None:
            raise ValueError("this metric needs the hierarchy above the labels")
        return self.path


NO_FACTS = LabelFacts()


def frequency_bands(counts: Array, bounds: tuple[int, int]) -> Array:
    """The bands (...) of labels from their numbers of training rows (...).

    Of `bounds` (a, b), a label with fewer than a rows is in the tail, one with more than b in the head.
    Source: Liu et al. 2019, Large-scale long-tailed recognition (few-shot below 20, many-shot above 100).
    """
    few, many = bounds
    return np.where(counts > many, 0, np.where(counts < few, 2, 1))
