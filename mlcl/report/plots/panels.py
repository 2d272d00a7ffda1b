"""Panels with clouds of points, as data and drawn."""

from __future__ import annotations

import itertools
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from mlcl.report.plots import style
from mlcl.report.plots.charts import Plot, legend

COLUMNS = 2
"""Most panels in a row: more would be too small on a phone."""
_TITLE, _NAME = 30, 62
"""Most letters in a line of a panel's title, and in an entry of the legend."""
_CROWD = 400
"""The number of points of a panel from which on they are drawn smaller."""


@dataclass(frozen=True)
class Cloud:
    """Points with one entry in the legend; `texts` are their labels.

    `colour` and `marker` are positions in the lists of `style`. A cloud that `stands_out` is drawn larger.
    """

    name: str
    colour: int
    marker: int
    x: Sequence[float]
    y: Sequence[float]
    texts: Sequence[str]
    stands_out: bool = False

    @property
    def hollow(self) -> bool:
        """True for every second mark: small filled circles, squares and diamonds look alike."""
        return self.marker % 2 == 1 and not self.stands_out


@dataclass(frozen=True)
class Panel:
    """One panel. All panels of a plot have the same clouds, some of which may be empty.

    A larger cloud is drawn under a smaller one, which it would hide.
    """

    title: str
    clouds: tuple[Cloud, ...]


def panel_plot(name: str, title: str, caption: str, panels: Sequence[Panel]) -> Plot:
    """The panels as a plot. Its table has a row for each point: panel, kind, point, x, y."""
    panels = _without_empty(panels)
    return Plot(name, title, caption, _table(panels), partial(_draw, panels))


def _without_empty(panels: Sequence[Panel]) -> list[Panel]:
    """The panels without the clouds that are empty in all of them."""
    kept = [
        any(len(cloud.x) for cloud in same) for same in zip(*(panel.clouds for panel in panels), strict=True)
    ]
    return [Panel(panel.title, tuple(itertools.compress(panel.clouds, kept))) for panel in panels]


def _table(panels: Sequence[Panel]) -> pd.DataFrame:
    rows = [
        (panel.title, cloud.name, *point)
        for panel in panels
        for cloud in panel.clouds
        for point in zip(cloud.texts, cloud.x, cloud.y, strict=True)
    ]
    return pd.DataFrame(rows, columns=["panel", "kind", "point", "x", "y"])


def _draw(panels: Sequence[Panel]) -> Figure:
    columns = min(COLUMNS, len(panels))
    lines = -(-len(panels) // columns)
    entries = len(panels[0].clouds)
    with style.matplotlib_style():
        side = style.WIDTH / columns if columns > 1 else style.HEIGHT
        figure = Figure(figsize=(style.WIDTH, lines * (side + 0.3) + 0.2 * entries), layout="constrained")
        for position, panel in enumerate(panels):
            axes = figure.add_subplot(lines, columns, position + 1)
            _draw_panel(axes, panel)
        legend(figure, figure.axes[0])
    return figure


def _draw_panel(axes: Axes, panel: Panel) -> None:
    points = sum(len(cloud.x) for cloud in panel.clouds)
    for cloud in panel.clouds:
        colour = style.COLOURS[cloud.colour % len(style.COLOURS)]
        axes.plot(
            cloud.x,
            cloud.y,
            linestyle="none",
            marker=style.MARKERS[cloud.marker % len(style.MARKERS)],
            markersize=17 if cloud.stands_out else 4 if points >= _CROWD else 5.5,
            markerfacecolor="white" if cloud.hollow else colour,
            markeredgecolor="black" if cloud.stands_out else colour,
            markeredgewidth=0.9,
            zorder=4 if cloud.stands_out else 3 - len(cloud.x) / points,
            label=style.as_text(_short(cloud.name)),
        )
    axes.set_title("\n".join(textwrap.wrap(style.as_text(panel.title), _TITLE)))
    # No ticks: the directions of such a plot mean nothing, and its distances little.
    axes.set(xticks=[], yticks=[])
    axes.set_aspect("equal", adjustable="datalim")
    axes.spines[:].set_visible(True)
    axes.spines[:].set_color("#bbbbbb")


def _short(name: str) -> str:
    return textwrap.shorten(name, _NAME, placeholder=" …")
