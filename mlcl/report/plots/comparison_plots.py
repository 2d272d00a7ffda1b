"""Plots of comparisons: a forest plot of a sweep's verdicts, and a diagram of the average ranks of methods.

The forest plot has the difference of each verdict, with its interval. The rank diagram has methods on a line
at their average rank, and bars that join methods that do not differ: J. Demsar, Statistical comparisons of
classifiers over multiple data sets, JMLR 7, 2006, figure 1.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Literal

import pandas as pd
from matplotlib.figure import Figure

from mlcl.report.plots import style
from mlcl.report.plots.charts import Plot
from mlcl.significance.verdict import Conclusion, Verdict

_ROW, _REST = 0.34, 1.1
"""The height of a row, and of the rest of the plot, in inches."""


def forest_plot(verdicts: Sequence[Verdict]) -> Plot:
    """Returns the forest plot of one or more verdicts of a sweep; its table has a row for each verdict."""
    rows = []
    for verdict in verdicts:
        pair = f"{verdict.treated.label} against {verdict.reference.label}"
        rows.append((pair, verdict.difference, *(verdict.interval or (None, None)), verdict.answer))
    table = pd.DataFrame(rows, columns=["pair", "difference", "low", "high", "answer"])
    first = verdicts[0]
    return Plot(
        "differences",
        f"{first.metric}: differences",
        f"Difference of the means with its {first.level:.0%} interval. Right of the line is better; "
        f"differences within the shaded band do not matter.",
        table,
        partial(_draw, table, first),
    )


_TICKS = 5
"""The largest number of tick labels, since long names may leave only half of the width for the axis."""


def _draw(table: pd.DataFrame, verdict: Verdict) -> Figure:
    with style.matplotlib_style():
        figure = Figure(figsize=(style.WIDTH, _ROW * len(table) + _REST))
        axes = figure.add_subplot()
        axes.axvspan(-verdict.margin, verdict.margin, color=style.MEANINGS["baseline"], alpha=0.2)
        axes.axvline(0, color=style.MEANINGS["baseline"], linewidth=style.LINE_WIDTH)
        for position, (_, row) in enumerate(table.iterrows()):
            axes.plot(
                [row["low"], row["high"]], [position, position], color="black", linewidth=style.LINE_WIDTH
            )
            fill = "white" if row["answer"] == Conclusion.CANNOT_TELL else style.MEANINGS["complete"]
            axes.plot(row["difference"], position, "s", color="black", markerfacecolor=fill)
        axes.set_yticks(range(len(table)), [style.as_text(f"{pair}") for pair in table["pair"]])
        axes.locator_params(axis="x", nbins=_TICKS)
        axes.set_ylim(len(table) - 0.5, -0.5)
        axes.set_xlabel(style.as_text(f"difference in {verdict.metric}"))
    return figure


_BAR = 0.5
"""The distance between two bars, in heights of a name."""
_AXIS = 3.2
"""The width of the axis of ranks in inches."""
_INCHES = 0.075
"""The estimated width of one character of a name in inches."""


@dataclass(frozen=True)
class RankDiagram:
    """The names of methods and their average ranks.

    Each of `groups` has the positions in `names` of methods that do not differ significantly.
    """

    names: tuple[str, ...]
    ranks: tuple[float, ...]
    groups: tuple[tuple[int, ...], ...]
    critical_difference: float


def rank_plot(name: str, title: str, caption: str, diagram: RankDiagram) -> Plot:
    """Returns the diagram as a plot, whose table has the average rank of each method, best first."""
    table = pd.DataFrame({"method": diagram.names, "average rank": diagram.ranks})
    table = table.sort_values("average rank", kind="stable", ignore_index=True)
    return Plot(name, title, caption, table, partial(_draw_ranks, diagram))


def _draw_ranks(diagram: RankDiagram) -> Figure:
    """Draws the diagram; x is minus the average rank, y the height above the axis in heights of a name."""
    k, order = len(diagram.names), sorted(range(len(diagram.names)), key=lambda index: diagram.ranks[index])
    bars_height = _BAR * (len(diagram.groups) + 1)
    top, bottom = 2.2, -bars_height - (k - 1)
    with style.matplotlib_style():
        names_width = _INCHES * (max(map(len, diagram.names)) + len(" (1.00)"))
        figure = Figure(figsize=(_AXIS + names_width, 0.24 * (top - bottom + 1)))
        figure.set_layout_engine("none")
        axes = figure.add_axes((0.04, 0, 0.96 * _AXIS / (_AXIS + names_width), 1))
        axes.set_ylim(bottom - 0.6, top + 0.6)
        axes.axis("off")

        def line(x: list[float], y: list[float], width: float) -> None:
            axes.plot(x, y, color="black", linewidth=width, solid_capstyle="butt")

        def label(x: float, y: float, text: str, side: Literal["left", "center"]) -> None:
            size = style.FONT_SIZE - 1
            axes.text(x, y, style.as_text(text), ha=side, va="center", fontsize=size)

        line([-k, -1], [0, 0], 1.2)
        for tick in range(1, k + 1):
            line([-tick, -tick], [0, 0.25], 1.2)
            label(-tick, 0.75, str(tick), "center")
        line([-k, diagram.critical_difference - k], [1.6, 1.6], 2.5)
        label(-k, top, f"critical difference {diagram.critical_difference:.2f}", "left")
        for number, group in enumerate(diagram.groups, start=1):
            ends = [-diagram.ranks[index] for index in group]
            line([min(ends) - 0.04, max(ends) + 0.04], [-_BAR * number] * 2, 4)
        for position, index in enumerate(order):
            rank, y = diagram.ranks[index], -bars_height - position
            line([-rank, -rank, -0.8], [0, y, y], 0.9)
            label(-0.75, y, f"{diagram.names[index]} ({rank:.2f})", "left")
    return figure
