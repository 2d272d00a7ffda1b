"""The average-rank diagram: methods on a line by average rank, and bars over those that do not differ.

J. Demsar, Statistical comparisons of classifiers over multiple data sets, JMLR 7, 2006, figure 1.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Literal, NamedTuple

import pandas as pd
from matplotlib.figure import Figure

from mlcl.report.plots import style
from mlcl.report.plots.plot import Plot

_BAR = 0.5
"""The distance between two bars, in heights of a name."""
_AXIS = 3.2
"""The width of the axis in inches."""
_INCHES = 0.075
"""The width of a letter of a name."""


@dataclass(frozen=True)
class RankDiagram:
    """Methods with their average ranks; `groups` are sets of positions of methods that do not differ."""

    names: tuple[str, ...]
    ranks: tuple[float, ...]
    groups: tuple[tuple[int, ...], ...]
    critical_difference: float


class _Line(NamedTuple):
    x: list[float]
    y: list[float]
    width: float


class _Label(NamedTuple):
    x: float
    y: float
    text: str
    side: Literal["left", "center"]


def rank_plot(name: str, title: str, caption: str, diagram: RankDiagram) -> Plot:
    """The diagram as a plot. Its table has the average rank of each method, the best first."""
    table = pd.DataFrame({"method": diagram.names, "average rank": diagram.ranks})
    return Plot(
        name,
        title,
        caption,
        table.sort_values("average rank", kind="stable", ignore_index=True),
        partial(_draw, diagram),
    )


def _shapes(diagram: RankDiagram) -> tuple[list[_Line], list[_Label]]:
    """Lines and labels: x is minus the average rank, y the height above the axis in heights of a name."""
    k = len(diagram.names)
    lines, labels = [_Line([-k, -1], [0, 0], 1.2)], list[_Label]()
    for tick in range(1, k + 1):
        lines.append(_Line([-tick, -tick], [0, 0.25], 1.2))
        labels.append(_Label(-tick, 0.75, str(tick), "center"))
    distance = diagram.critical_difference
    lines.append(_Line([-k, distance - k], [1.6, 1.6], 2.5))
    labels.append(_Label(-k, 2.2, f"critical difference {distance:.2f}", "left"))
    for number, group in enumerate(diagram.groups, start=1):
        ends = [-diagram.ranks[place] for place in group]
        lines.append(_Line([min(ends) - 0.04, max(ends) + 0.04], [-_BAR * number] * 2, 4))
    below = _BAR * (len(diagram.groups) + 1)
    order = sorted(range(k), key=lambda place: diagram.ranks[place])
    for position, place in enumerate(order):
        rank, y = diagram.ranks[place], -below - position
        lines.append(_Line([-rank, -rank, -0.8], [0, y, y], 0.9))
        labels.append(_Label(-0.75, y, f"{diagram.names[place]} ({rank:.2f})", "left"))
    return lines, labels


def _height(labels: Sequence[_Label]) -> float:
    return max(label.y for label in labels) - min(label.y for label in labels) + 1


def _letters(diagram: RankDiagram) -> int:
    return max(map(len, diagram.names)) + len(" (1.00)")


def _draw(diagram: RankDiagram) -> Figure:
    lines, labels = _shapes(diagram)
    with style.matplotlib_style():
        beside = _INCHES * _letters(diagram)
        figure = Figure(figsize=(_AXIS + beside, 0.24 * _height(labels)))
        figure.set_layout_engine("none")
        axes = figure.add_axes((0.04, 0, 0.96 * _AXIS / (_AXIS + beside), 1))
        heights = [label.y for label in labels]
        axes.set_ylim(min(heights) - 0.6, max(heights) + 0.6)
        axes.axis("off")
        for line in lines:
            axes.plot(line.x, line.y, color="black", linewidth=line.width, solid_capstyle="butt")
        for label in labels:
            text = style.as_text(label.text)
            axes.text(label.x, label.y, text, ha=label.side, va="center", fontsize=style.FONT_SIZE - 1)
    return figure
