"""A chart on two axes as data, from which both libraries draw it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

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


@dataclass(frozen=True)
class Chart:
    """Series on two axes."""

    x: Axis
    y: Axis
    series: tuple[Series, ...]
