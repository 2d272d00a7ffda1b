"""A chart on two axes as data, from which both libraries draw it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

Kind = Literal["line", "points", "bars"]


@dataclass(frozen=True)
class Axis:
    """An axis. On a categorical one position i has the label `names[i]`."""

    label: str
    log: bool = False
    names: tuple[str, ...] = ()


@dataclass(frozen=True)
class Series:
    """A line, points or bars, with one entry in the legend.

    `low` and `high` are the ends of a line's band, or of the error bars of points and bars. `texts` are the
    labels of points.
    """

    name: str
    kind: Kind
    x: Sequence[float]
    y: Sequence[float]
    low: Sequence[float] | None = None
    high: Sequence[float] | None = None
    texts: Sequence[str] | None = None


def mean_series(
    name: str,
    x: ArrayLike,
    mean: ArrayLike,
    deviation: ArrayLike | None,
    kind: Kind = "line",
    texts: Sequence[str] | None = None,
) -> Series:
    """Means with one standard deviation to each side; `deviation` is None where there is one value each."""
    position, centre = np.asarray(x).tolist(), np.asarray(mean, float)
    if deviation is None:
        return Series(name, kind, position, centre.tolist(), texts=texts)
    low, high = (centre + sign * np.asarray(deviation, float) for sign in (-1, 1))
    return Series(name, kind, position, centre.tolist(), low.tolist(), high.tolist(), texts)


@dataclass(frozen=True)
class Chart:
    """Series on two axes."""

    x: Axis
    y: Axis
    series: tuple[Series, ...]
