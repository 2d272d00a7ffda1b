"""A plot of a report with its data, a chart on two axes as data, and the building of several plots."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from numpy.typing import ArrayLike


@dataclass(frozen=True)
class Plot:
    """A plot of a report.

    `name` is the stem of its files, `title` and `caption` are plain text, `table` has the data. Each call of
    `figure` draws it.
    """

    name: str
    title: str
    caption: str
    table: pd.DataFrame
    figure: Callable[[], Figure]


PlotCollection = tuple[list[Plot], list[tuple[str, str]]]
"""Plots, and the (name, reason) of each that was skipped."""


class PlotSkipped(Exception):  # noqa: N818
    """A plot has nothing to show, for the reason given."""


def require_change(values: Iterable[float]) -> None:
    """Raises PlotSkipped where all values are the same: a picture of a constant tells nothing."""
    if len(set(values)) < 2:
        raise PlotSkipped("its values are all the same")


def build_plots(builders: Mapping[str, Callable[[], Plot | list[Plot]]]) -> PlotCollection:
    """Calls the builders in their order; one that raises PlotSkipped is recorded with the reason."""
    plots: list[Plot] = []
    skipped = []
    for name, make in builders.items():
        try:
            made = make()
        except PlotSkipped as reason:
            skipped.append((name, str(reason)))
        else:
            plots += made if isinstance(made, list) else [made]
    return plots, skipped


Kind = Literal["line", "points"]


@dataclass(frozen=True)
class Axis:
    """An axis."""

    label: str
    log: bool = False


@dataclass(frozen=True)
class Series:
    """A line or points, with one entry in the legend.

    `low` and `high` are the ends of a line's band, or of the error bars of points. `texts` are the
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
