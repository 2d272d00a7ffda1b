"""A picture on two axes as data, so that both libraries draw the same and one table tells it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

Kind = Literal["line", "points", "bars"]


@dataclass(frozen=True)
class Axis:
    """An axis. `names` are the ticks of a categorical one: position i is called names[i]."""

    label: str
    log: bool = False
    names: tuple[str, ...] = ()


@dataclass(frozen=True)
class Series:
    """One line, cloud of points or set of bars, with its entry in the legend.

    `low` and `high` are a band around a line, or the error bars of points and bars. `texts` tell each point.
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
