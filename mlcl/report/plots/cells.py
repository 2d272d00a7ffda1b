"""A plot of a table's cells: a panel for each group of comparable cells, a line for each cell."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Mapping, Sequence
from functools import partial
from statistics import median
from typing import NamedTuple

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from mlcl.report.plots import style
from mlcl.report.plots.charts import Plot
from mlcl.report.plots.panels import COLUMNS

_LINE, _REST = 0.28, 0.75
"""Height of a cell's line, and of all else in a panel, in inches."""
_NAME, _TITLE = 22, 30
"""Most letters in a line of a cell's name, and of a panel's title."""
_FAR = 10.0
"""A mean further from the median than so many median absolute deviations is far out."""
_ROOM = 0.08
"""Room at both ends of an axis, as a share of what it spans."""


class CellPoint(NamedTuple):
    """A cell's mean with the ends of its interval, and the printed value where there is one."""

    group: str
    cell: str
    mean: float
    low: float
    high: float
    printed: float | None = None


def cells_plot(name: str, title: str, caption: str, label: str, points: Sequence[CellPoint]) -> Plot:
    """The plot of at least one point, whose axis has the `label`. Its table has a row for each point.

    A mean that is far out in its panel stands at the edge with an arrow and its number, so that the others
    stay distinct.
    """
    return Plot(name, title, caption, pd.DataFrame(points), partial(_draw, points, label))


def _draw(points: Sequence[CellPoint], label: str) -> Figure:
    groups = list(dict.fromkeys(point.group for point in points))
    columns = min(COLUMNS, len(groups))
    rows = [groups[first : first + columns] for first in range(0, len(groups), columns)]
    names = [list(dict.fromkeys(point.cell for point in points if point.group in row)) for row in rows]
    heights = [_LINE * len(cells) + _REST for cells in names]
    with style.matplotlib_style():
        figure = Figure(figsize=(style.WIDTH, sum(heights)))
        panels = figure.subplots(len(rows), columns, sharey="row", squeeze=False, height_ratios=heights)
        for row, cells, axes in zip(rows, names, panels, strict=True):
            _draw_row([[point for point in points if point.group == group] for group in row], cells, axes)
        figure.supxlabel(style.as_text(label), fontsize=style.FONT_SIZE)
    return figure


def _draw_row(groups: Sequence[Sequence[CellPoint]], cells: Sequence[str], panels: Sequence[Axes]) -> None:
    """Panels side by side, whose lines are `cells`; there may be more panels than groups."""
    lines = {name: place for place, name in enumerate(cells)}
    for axes, points in zip(panels, groups, strict=False):
        _draw_panel(axes, points, lines)
        axes.set_title(_wrapped(points[0].group, _TITLE))
    for axes in panels[len(groups) :]:
        axes.axis("off")
    panels[0].set_yticks(range(len(lines)), [_wrapped(name, _NAME) for name in lines])
    panels[0].set_ylim(len(lines) - 0.5, -0.5)


def _wrapped(text: str, letters: int) -> str:
    return "\n".join(textwrap.wrap(style.as_text(text), letters))


def _draw_panel(axes: Axes, points: Sequence[CellPoint], lines: Mapping[str, int]) -> None:
    low, high = _limits(points)
    axes.set_xlim(low, high)
    axes.tick_params(labelsize=style.FONT_SIZE - 2)
    for point in points:
        y = lines[point.cell]
        if point.printed is not None:
            axes.plot(point.printed, y, "s", color=style.COLOURS[1], markerfacecolor="none")
        if low <= point.mean <= high:
            axes.plot([point.low, point.high], [y, y], color="black", linewidth=style.LINE_WIDTH)
            axes.plot(point.mean, y, "o", color=style.MEANINGS["complete"])
        elif point.mean < low:
            axes.text(
                low, y, f"\u2190 {point.mean:.1f}", ha="left", va="center", fontsize=style.FONT_SIZE - 2
            )
        else:
            axes.text(
                high, y, f"{point.mean:.1f} \u2192", ha="right", va="center", fontsize=style.FONT_SIZE - 2
            )


def _limits(points: Sequence[CellPoint]) -> tuple[float, float]:
    """The ends of the axis: of means, printed values and intervals, without means that are far out."""
    means = [point.mean for point in points]
    middle = median(means)
    reach = _FAR * median(abs(mean - middle) for mean in means) or math.inf
    near = [point for point in points if abs(point.mean - middle) <= reach]
    ends = [end for point in near for end in (point.low, point.high)]
    ends += [point.printed for point in near if point.printed is not None]
    room = _ROOM * (max(ends) - min(ends)) or 1.0
    return min(ends) - room, max(ends) + room
