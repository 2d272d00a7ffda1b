"""Plots of a table: the figures of all cells; learning curves and embeddings of comparable cells.

Cells are comparable if they have the same data.
"""

from __future__ import annotations

import math
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from statistics import median
from typing import NamedTuple

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from mlcl.report.embedding_plots import MOST_SETTINGS, EmbeddingPlots
from mlcl.report.plots import style
from mlcl.report.plots.charts import Plot, PlotCollection, build_plots
from mlcl.report.plots.learning_curves import learning_plot
from mlcl.report.plots.panels import COLUMNS
from mlcl.report.sweep_data import Histories
from mlcl.results.cell_result import CellResult
from mlcl.results.table_result import TableResult

MOST_GROUPS = 3
"""The largest number of groups of comparable cells for which curves and embeddings are drawn."""


@dataclass(frozen=True)
class CellGroup:
    """Comparable cells that have a value, keyed by their label; the first one is the reference.

    `title` is the row or column that they share.
    """

    title: str
    cells: Mapping[str, CellResult]

    def runs_to_draw(self, higher: Mapping[str, bool], most: int) -> dict[str, list[str]]:
        """Returns the run ids of up to `most` cells, keyed by label: the first, the best, then further cells.

        Only the runs of seeds that all these cells have are taken. Cells with a run that MLflow lacks are
        left out.
        """
        figures = {name: cell.figures[0] for name, cell in self.cells.items()}
        signs = {name: 1 if higher[figure.name] else -1 for name, figure in figures.items()}
        best = max(figures, key=lambda name: (figures[name].mean or 0.0) * signs[name])
        names = list(dict.fromkeys([next(iter(figures)), best, *figures]))[:most]
        common = sorted(set.intersection(*(set(figures[name].by_seed) for name in names)))
        runs = {name: [self.cells[name].run_id(seed) for seed in common] for name in figures if name in names}
        return {name: [id for id in ids if id] for name, ids in runs.items() if ids and None not in ids}


def comparable_cells(table: TableResult) -> list[CellGroup]:
    """Returns the table's cells that have a value, in groups with the same data."""
    groups: dict[str, list[CellResult]] = {}
    for cell in table.cells:
        if cell.figures[0].by_seed:
            groups.setdefault(cell.data, []).append(cell)
    return [_make_group(cells) for cells in groups.values()]


def _make_group(cells: Sequence[CellResult]) -> CellGroup:
    rows, columns = {cell.row for cell in cells}, {cell.column for cell in cells}
    if len(rows) == 1:
        return CellGroup(rows.pop(), {cell.column: cell for cell in cells})
    if len(columns) == 1:
        return CellGroup(columns.pop(), {cell.row: cell for cell in cells})
    return CellGroup(f"{cells[0].label} and others", {cell.label: cell for cell in cells})


def plot_name(kind: str, figure: str) -> str:
    """Returns the name of a plot of a figure: `KIND-FIGURE` in lower case, with other signs as hyphens."""
    return f"{kind}-" + "".join(character if character.isalnum() else "-" for character in figure.lower())


def cell_plots(table: TableResult) -> list[Plot]:
    """Returns one plot for each figure that has a value, with all cells beside the paper's numbers."""
    measured_names = {figure.name for _, figure in table.figures if figure.by_seed}
    return [_cells_plot(table, name) for name in table.figure_names if name in measured_names]


def group_plots(table: TableResult, draw_embeddings: EmbeddingPlots, history: Histories) -> PlotCollection:
    """Draws learning curves of each group of cells, and embeddings of up to `MOST_SETTINGS` of its cells."""
    plots, skipped = list[Plot](), list[tuple[str, str]]()
    groups = comparable_cells(table)
    for number, group in enumerate(groups[:MOST_GROUPS], start=1):
        embeddings = draw_embeddings(group.runs_to_draw(table.higher, MOST_SETTINGS))
        for drawn_plots, reasons in (_learning_plots(group, history), embeddings):
            several = len(groups) > 1
            for plot in drawn_plots:
                name, title = f"{plot.name}-{number}", f"{plot.title}: {group.title}"
                plots.append(replace(plot, name=name, title=title) if several else plot)
            skipped += (
                [(f"{name}: {group.title}", reason) for name, reason in reasons] if several else reasons
            )
    limit = f"at most {MOST_GROUPS} groups of cells are drawn"
    return plots, skipped + [(f"what was learnt: {group.title}", limit) for group in groups[MOST_GROUPS:]]


def _learning_plots(group: CellGroup, history: Histories) -> PlotCollection:
    runs = {name: cell.run_ids(cell.figures[0]) for name, cell in group.cells.items()}
    settings = {name: ids for name, ids in runs.items() if ids}
    metric = str(next(iter(group.cells.values())).params.get("evaluation.metric", ""))
    return build_plots({"learning": lambda: learning_plot(metric, settings, history)})


def _cells_plot(table: TableResult, name: str) -> Plot:
    points = [
        CellPoint(group.title, label, figure.mean, figure.mean - spread, figure.mean + spread, figure.printed)
        for group in comparable_cells(table)
        for label, cell in group.cells.items()
        for figure in cell.figures
        if figure.name == name and figure.mean is not None
        for spread in [figure.deviation or 0.0]
    ]
    caption = (
        "A panel has the cells that saw the same data: means over the seeds, with their standard deviation."
    )
    if any(point.printed is not None for point in points):
        caption += " Hollow squares are the printed figures."
    draw = partial(draw_cells, points, f"{name} ({table.unit})")
    return Plot(plot_name("cells", name), f"{name} by cell", caption, pd.DataFrame(points), draw)


_LINE, _REST = 0.28, 0.75
"""The height of a cell's line, and of the rest of a panel, in inches."""
_NAME, _TITLE = 22, 30
"""The largest number of characters in a line of a cell's name, and of a panel's title."""
_FAR = 10.0
"""The distance from the median, in median absolute deviations, beyond which a mean is an outlier."""
_ROOM = 0.08
"""The margin at both ends of an axis, as a fraction of its range."""


class CellPoint(NamedTuple):
    """A point of the plot of a figure: a cell's mean, mean ± deviation, and the paper's number if any."""

    group: str
    cell: str
    mean: float
    low: float
    high: float
    printed: float | None = None


def draw_cells(points: Sequence[CellPoint], label: str) -> Figure:
    """Draws one panel for each group of `points`, which must not be empty; `label` is that of their axis.

    An outlier of a panel is drawn at the edge, with an arrow and its value, so that the others stay distinct.
    """
    groups = list(dict.fromkeys(point.group for point in points))
    columns = min(COLUMNS, len(groups))
    rows = [groups[start : start + columns] for start in range(0, len(groups), columns)]
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
    """Draws each group into a panel of a row, whose vertical axis has a line for each of `cells`."""
    lines = {name: position for position, name in enumerate(cells)}
    for axes, points in zip(panels, groups, strict=False):
        _draw_panel(axes, points, lines)
        axes.set_title(_wrap_label(points[0].group, _TITLE))
    for axes in panels[len(groups) :]:
        axes.axis("off")
    panels[0].set_yticks(range(len(lines)), [_wrap_label(name, _NAME) for name in lines])
    panels[0].set_ylim(len(lines) - 0.5, -0.5)


def _wrap_label(text: str, letters: int) -> str:
    return "\n".join(textwrap.wrap(style.as_text(text), letters))


def _draw_panel(axes: Axes, points: Sequence[CellPoint], lines: Mapping[str, int]) -> None:
    low, high = _axis_limits(points)
    axes.set_xlim(low, high)
    axes.tick_params(labelsize=style.FONT_SIZE - 2)
    for point in points:
        y = lines[point.cell]
        if point.printed is not None:
            axes.plot(point.printed, y, "s", color=style.COLOURS[1], markerfacecolor="none")
        if low <= point.mean <= high:
            axes.plot([point.low, point.high], [y, y], color="black", linewidth=style.LINE_WIDTH)
            axes.plot(point.mean, y, "o", color=style.MEANINGS["complete"])
        else:
            is_low, mean = point.mean < low, f"{point.mean:.1f}"
            text, side = (f"\u2190 {mean}", "left") if is_low else (f"{mean} \u2192", "right")
            edge = low if is_low else high
            axes.text(edge, y, text, ha=side, va="center", fontsize=style.FONT_SIZE - 2)


def _axis_limits(points: Sequence[CellPoint]) -> tuple[float, float]:
    """Returns the limits of the axis, which contain all points of a panel except the outliers."""
    means = [point.mean for point in points]
    middle = median(means)
    max_distance = _FAR * median(abs(mean - middle) for mean in means) or math.inf
    inliers = [point for point in points if abs(point.mean - middle) <= max_distance]
    ends = [end for point in inliers for end in (point.low, point.high)]
    ends += [point.printed for point in inliers if point.printed is not None]
    padding = _ROOM * (max(ends) - min(ends)) or 1.0
    return min(ends) - padding, max(ends) + padding
