"""A plot of a report with its data; charts on two axes as data, drawn by matplotlib without a display."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from io import StringIO
from typing import Any, Literal

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.axis import Axis as Ruler
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter
from numpy.typing import ArrayLike

from mlcl.report.plots import style

_MARKS = 12
"""Most markers on a line: more would hide its dashes."""
_WIDE = 50
"""The ratio of a logarithmic axis' ends from which on only powers of ten are labelled."""
_PLACE = re.compile(r' (?:d|x|y)="[^"]*"')
_DIGITS = re.compile(r"(\.\d{2})\d+")
"""Matches the digits of coordinates that are too small to be seen: they are half of a file."""
_INDENT = re.compile(r"\n +")


@dataclass(frozen=True)
class Plot:
    """A plot of a report.

    `name` is the stem of its files, `title` and `caption` are plain text, `table` has the data. Each call of
    `figure` draws it with matplotlib.
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
    """Raises PlotSkipped where all values are the same: a constant needs no plot."""
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


def draw(chart: Chart) -> Figure:
    """The chart as a figure, without the texts of points."""
    with style.matplotlib_style():
        figure = Figure()
        axes = figure.add_subplot()
        for position, series in enumerate(chart.series):
            _draw_marks(axes, series, style.series_style(position, series.name))
        _scale(axes, chart)
        if len(chart.series) > 1:
            legend(figure, axes)
    return figure


def legend(figure: Figure, axes: Axes) -> None:
    """Adds a legend under the axes, in as many columns as fit; a long one makes the figure taller."""
    handles, names = axes.get_legend_handles_labels()
    longest = max(map(len, names), default=1)
    columns = max(1, min(len(names), 56 // (longest + 8)))
    rows = -(-len(names) // columns)
    figure.set_figheight(figure.get_figheight() + 0.2 * max(0, rows - 2))
    figure.legend(handles, names, loc="outside lower center", ncols=columns, fontsize=style.FONT_SIZE - 1)


def to_svg(figure: Figure) -> str:
    """The figure as SVG; the same figure gives the same file."""
    file = StringIO()
    with style.matplotlib_style():
        figure.savefig(file, format="svg", metadata={"Date": None})
    image = _PLACE.sub(lambda place: _DIGITS.sub(r"\1", place[0]), file.getvalue())
    return _INDENT.sub("\n", image)


def _draw_marks(axes: Axes, series: Series, look: dict[str, Any]) -> None:
    line = series.kind == "line"
    axes.plot(
        series.x,
        series.y,
        **(look if line else look | {"linestyle": "none"}),
        linewidth=style.LINE_WIDTH,
        markersize=6 if line or len(series.x) < style.CLOUD else 3,
        markevery=max(1, len(series.x) // _MARKS) if line else None,
        label=style.as_text(series.name),
    )
    if series.low is None or series.high is None:
        return
    band, colour = (series.x, series.low, series.high), look["color"]
    if line:
        axes.fill_between(*band, color=colour, alpha=style.BAND, linewidth=0)
    else:
        axes.vlines(*band, color=colour, linewidth=style.LINE_WIDTH)


def _scale(axes: Axes, chart: Chart) -> None:
    axes.tick_params(labelsize=style.FONT_SIZE - 1)
    axes.set_xlabel(style.as_text(chart.x.label))
    axes.set_ylabel(style.as_text(chart.y.label))
    for ruler, axis in ((axes.xaxis, chart.x), (axes.yaxis, chart.y)):
        if axis.log:
            log_ruler(ruler)


def log_ruler(ruler: Ruler) -> None:
    """Makes an axis logarithmic, with its numbers written out (0.05, not a power of ten)."""
    axes = ruler.axes
    if ruler is axes.xaxis:
        axes.set_xscale("log")
    else:
        axes.set_yscale("log")
    low, high = ruler.get_view_interval()
    ruler.set_major_locator(LogLocator(subs=(1, 2, 5) if high / low < _WIDE else (1,)))
    ruler.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    ruler.set_minor_formatter(NullFormatter())


def chart_plot(name: str, title: str, caption: str, chart: Chart) -> Plot:
    """The chart as a plot. The columns of its table are series, x, y, and low, high, text as needed."""
    return Plot(name, title, caption, _table(chart), partial(draw, chart))


def _table(chart: Chart) -> pd.DataFrame:
    columns: dict[str, list[Any]] = {
        "series": [series.name for series in chart.series for _ in series.x],
        chart.x.label: [x for series in chart.series for x in series.x],
        chart.y.label: [y for series in chart.series for y in series.y],
    }
    for column, given in (("low", "low"), ("high", "high"), ("text", "texts")):
        if any(getattr(series, given) is not None for series in chart.series):
            columns[column] = [value for series in chart.series for value in _values(series, given)]
    return pd.DataFrame(columns)


def _values(series: Series, given: str) -> list[Any]:
    values = getattr(series, given)
    return [None] * len(series.x) if values is None else list(values)
