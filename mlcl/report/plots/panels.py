"""Draws panels with scatter plots, in which the kind of a point determines its mark."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from mlcl.report.plots import style
from mlcl.report.plots.charts import Plot, legend

COLUMNS = 2
"""The largest number of panels in a row: more would be too small on a phone."""
_TITLE, _NAME = 30, 62
"""The largest number of characters in a line of a panel's title, and in an entry of the legend."""
_CROWD = 400
"""The smallest number of points in a panel for which they are drawn smaller."""


@dataclass(frozen=True)
class Mark:
    """The mark of the points of one kind: indices into the colours and markers of `style`.

    A mark that `stands_out` is drawn larger and on top.
    """

    colour: int
    marker: int
    stands_out: bool = False

    @property
    def hollow(self) -> bool:
        """Whether the mark is hollow: every second marker is, since small filled markers look alike."""
        return self.marker % 2 == 1 and not self.stands_out


def points(panel: str, kind: str, texts: Sequence[str], points_N2: Sequence[Sequence[float]]) -> pd.DataFrame:
    """Returns a frame of the points (N, 2) of one kind in a panel; `texts` describes each point."""
    x_y = pd.DataFrame(list(points_N2), columns=["x", "y"], dtype=float)
    return x_y.assign(panel=panel, kind=kind, point=list(texts))[["panel", "kind", "point", "x", "y"]]


def panel_plot(
    name: str, title: str, caption: str, rows: Iterable[pd.DataFrame], marks: Mapping[str, Mark]
) -> Plot:
    """Returns a plot of frames made by `points`, with a legend entry for each kind that has points.

    `marks` has the mark of each kind. Kinds with fewer points are drawn above kinds with more, which would
    hide them.
    """
    table = pd.concat(rows, ignore_index=True)
    shown_marks = {kind: mark for kind, mark in marks.items() if (table["kind"] == kind).any()}
    return Plot(name, title, caption, table, partial(_draw, table, shown_marks))


def _draw(table: pd.DataFrame, marks: Mapping[str, Mark]) -> Figure:
    panels = list(table.groupby("panel", sort=False))
    columns = min(COLUMNS, len(panels))
    lines = -(-len(panels) // columns)
    with style.matplotlib_style():
        side = style.WIDTH / columns if columns > 1 else style.HEIGHT
        size = (style.WIDTH, lines * (side + 0.3) + 0.2 * len(marks))
        figure = Figure(figsize=size, layout="constrained")
        for position, (title, rows) in enumerate(panels):
            axes = figure.add_subplot(lines, columns, position + 1)
            _draw_panel(axes, str(title), rows, marks)
        legend(figure, figure.axes[0])
    return figure


def _draw_panel(axes: Axes, title: str, rows: pd.DataFrame, marks: Mapping[str, Mark]) -> None:
    for kind, mark in marks.items():
        kind_rows = rows[rows["kind"] == kind]
        colour = style.COLOURS[mark.colour % len(style.COLOURS)]
        axes.plot(
            kind_rows["x"],
            kind_rows["y"],
            linestyle="none",
            marker=style.MARKERS[mark.marker % len(style.MARKERS)],
            markersize=17 if mark.stands_out else 4 if len(rows) >= _CROWD else 5.5,
            markerfacecolor="white" if mark.hollow else colour,
            markeredgecolor="black" if mark.stands_out else colour,
            markeredgewidth=0.9,
            zorder=4 if mark.stands_out else 3 - len(kind_rows) / len(rows),
            label=style.as_text(textwrap.shorten(kind, _NAME, placeholder=" …")),
        )
    axes.set_title("\n".join(textwrap.wrap(style.as_text(title), _TITLE)))
    # There are no ticks, because directions in such a plot mean nothing, and distances little.
    axes.set(xticks=[], yticks=[])
    axes.set_aspect("equal", adjustable="datalim")
    axes.spines[:].set_visible(True)
    axes.spines[:].set_color("#bbbbbb")
