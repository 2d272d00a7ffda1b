"""The plots of reports with their data, and charts of lines and points, drawn by matplotlib."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from io import StringIO
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.axis import Axis as Ruler
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter
from numpy.typing import ArrayLike

from mlcl.report.plots import style

_MARKS = 12
"""The largest number of markers on a line: more would hide its dashes."""
_WIDE = 50
"""The ratio of the ends of a logarithmic axis from which only powers of ten are labelled."""
_PLACE = re.compile(r' (?:d|x|y)="[^"]*"')
_DIGITS = re.compile(r"(\.\d{2})\d+")
"""Matches decimals of coordinates in an SVG; those after the second are dropped, which halves the file."""
_INDENT = re.compile(r"\n +")


@dataclass(frozen=True)
class Plot:
    """A plot of a report.

    `name` is the stem of its file names, `title` and `caption` are plain text, `table` has its data. Each
    call of `figure` draws a new matplotlib figure.
    """

    name: str
    title: str
    caption: str
    table: pd.DataFrame
    figure: Callable[[], Figure]


PlotCollection = tuple[list[Plot], list[tuple[str, str]]]
"""A list of plots, and a list with the (name, reason) of each plot that was skipped."""


class PlotSkipped(Exception):  # noqa: N818
    """Raised if a plot has nothing to show; the message is the reason."""


def require_change(values: Iterable[float]) -> None:
    """Raises PlotSkipped where all values are equal: a constant needs no plot."""
    if len(set(values)) < 2:
        raise PlotSkipped("its values are all the same")


def build_plots(builders: Mapping[str, Callable[[], Plot | list[Plot]]]) -> PlotCollection:
    """Calls the builders, keyed by name; returns their plots, and (name, reason) of those that skipped."""
    plots: list[Plot] = []
    skipped = []
    for name, builder in builders.items():
        try:
            result = builder()
        except PlotSkipped as reason:
            skipped.append((name, str(reason)))
        else:
            plots += result if isinstance(result, list) else [result]
    return plots, skipped


@dataclass(frozen=True)
class Axis:
    """An axis of a plot: its label, and whether its scale is logarithmic."""

    label: str
    log: bool = False


def series(
    name: str,
    x: ArrayLike,
    y: ArrayLike,
    deviation: ArrayLike | None = None,
    texts: Iterable[str] | None = None,
) -> pd.DataFrame:
    """Returns the frame of a series (a line or points) for `chart_plot`; `texts` has a label for each point.

    `deviation` is drawn to both sides of y, as the band of a line or as error bars of points.
    """
    rows = pd.DataFrame({"series": name, "x": np.asarray(x), "y": np.asarray(y, float)})
    if deviation is not None:
        spread = np.asarray(deviation, float)
        rows = rows.assign(low=rows["y"] - spread, high=rows["y"] + spread)
    return rows if texts is None else rows.assign(text=list(texts))


def chart_plot(
    name: str,
    title: str,
    caption: str,
    rows: Iterable[pd.DataFrame],
    x: Axis,
    y: Axis,
    points: Collection[str] = (),
) -> Plot:
    """Returns a plot of frames made by `series`; the series named in `points` are drawn as points, not lines.

    The columns of the plot's table are `series`, the labels of x and y, and `low`, `high`, `text` if given.
    """
    table = pd.concat(rows, ignore_index=True)
    columns = [column for column in ("series", "x", "y", "low", "high", "text") if column in table]
    table = table[columns].rename(columns={"x": x.label, "y": y.label})
    return Plot(name, title, caption, table, partial(draw, table, x, y, points))


def draw(table: pd.DataFrame, x: Axis, y: Axis, points: Collection[str]) -> Figure:
    """Draws a chart as a figure without text labels; the series in `points` are drawn without a line."""
    with style.matplotlib_style():
        figure = Figure()
        axes = figure.add_subplot()
        rows = table.rename(columns={x.label: "x", y.label: "y"})
        names = list(dict.fromkeys(rows["series"]))
        for position, name in enumerate(names):
            mark_style = style.series_style(position, name)
            _draw_marks(axes, rows[rows["series"] == name], mark_style, line=name not in points)
        axes.tick_params(labelsize=style.FONT_SIZE - 1)
        axes.set_xlabel(style.as_text(x.label))
        axes.set_ylabel(style.as_text(y.label))
        for ruler, axis in ((axes.xaxis, x), (axes.yaxis, y)):
            if axis.log:
                log_ruler(ruler)
        if len(names) > 1:
            legend(figure, axes)
    return figure


def _draw_marks(axes: Axes, rows: pd.DataFrame, mark_style: dict[str, Any], *, line: bool) -> None:
    axes.plot(
        rows["x"],
        rows["y"],
        **(mark_style if line else mark_style | {"linestyle": "none"}),
        linewidth=style.LINE_WIDTH,
        markersize=6 if line or len(rows) < style.CLOUD else 3,
        markevery=max(1, len(rows) // _MARKS) if line else None,
        label=style.as_text(rows["series"].iloc[0]),
        rasterized=len(rows) > style.MOST_SHAPES,
    )
    if "low" not in rows or rows["low"].isna().all():
        return
    if line:
        band = {"color": mark_style["color"], "alpha": style.BAND, "linewidth": 0}
        axes.fill_between(rows["x"], rows["low"], rows["high"], **band)
    else:
        axes.vlines(
            rows["x"], rows["low"], rows["high"], color=mark_style["color"], linewidth=style.LINE_WIDTH
        )


def legend(figure: Figure, axes: Axes) -> None:
    """Adds a legend under the axes, in as many columns as fit; a long one makes the figure taller."""
    handles, names = axes.get_legend_handles_labels()
    longest = max(map(len, names), default=1)
    columns = max(1, min(len(names), 56 // (longest + 8)))
    rows = -(-len(names) // columns)
    figure.set_figheight(figure.get_figheight() + 0.2 * max(0, rows - 2))
    figure.legend(handles, names, loc="outside lower center", ncols=columns, fontsize=style.FONT_SIZE - 1)


def to_svg(figure: Figure) -> str:
    """Returns the figure as SVG; equal figures give equal text."""
    file = StringIO()
    with style.matplotlib_style(), warnings.catch_warnings():
        # The text stays text in the SVG: the browser's fonts draw what matplotlib's cannot.
        warnings.filterwarnings("ignore", r"Glyph \d+ .* missing from font", UserWarning)
        figure.savefig(file, format="svg", metadata={"Date": None})
    svg = _PLACE.sub(lambda match: _DIGITS.sub(r"\1", match[0]), file.getvalue())
    return _INDENT.sub("\n", svg)


def log_ruler(ruler: Ruler) -> None:
    """Makes an axis logarithmic, with its numbers written out (0.05, not a power of ten)."""
    axes = ruler.axes
    (axes.set_xscale if ruler is axes.xaxis else axes.set_yscale)("log")
    low, high = ruler.get_view_interval()
    ruler.set_major_locator(LogLocator(subs=(1, 2, 5) if high / low < _WIDE else (1,)))
    ruler.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    ruler.set_minor_formatter(NullFormatter())
