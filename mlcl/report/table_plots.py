"""All plots of a table: its figures by cell; learning curves and embeddings of comparable cells.

Cells can be compared that have the same data.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from mlcl.report.embedding_plots import MOST_SETTINGS, EmbeddingPlots
from mlcl.report.plots.cells import CellPoint, cells_plot
from mlcl.report.plots.learning_curves import learning_plot
from mlcl.report.plots.plot import Plot, PlotCollection, build_plots
from mlcl.report.runs import Runs
from mlcl.report.table_data import TableData, TableFigure

MOST_GROUPS = 3
"""Most groups of cells that are drawn."""


@dataclass(frozen=True)
class CellGroup:
    """Cells by name, each with its figures in the table's order. `title` is the row or column they share.

    The first cell is the reference of comparisons. Cells without a value are left out.
    """

    title: str
    cells: Mapping[str, tuple[TableFigure, ...]]

    def chosen(self, higher: Mapping[str, bool], most: int) -> dict[str, list[str]]:
        """The ids of runs of the first cell, the best one and others, up to `most`, on common seeds.

        Cells of which MLflow lacks a run are left out.
        """
        first = {name: figures[0] for name, figures in self.cells.items()}
        best = max(
            first, key=lambda name: (first[name].mean or 0.0) * (1 if higher[first[name].name] else -1)
        )
        names = list(dict.fromkeys([next(iter(first)), best, *first]))[:most]
        common = sorted(set.intersection(*(set(first[name].by_seed) for name in names)))
        runs = {name: [first[name].runs[place] for place in common] for name in first if name in names}
        return {
            name: [str(run.info.run_id) for run in its if run]
            for name, its in runs.items()
            if its and None not in its
        }


def comparable_cells(data: TableData) -> list[CellGroup]:
    """The table's cells in groups with the same data."""
    found: dict[str, dict[tuple[str, str], tuple[TableFigure, ...]]] = {}
    for each in data.figures:
        group = found.setdefault(each.data, {})
        group[each.row, each.column] = (*group.get((each.row, each.column), ()), each)
    known = [
        {place: figures for place, figures in cells.items() if figures[0].by_seed} for cells in found.values()
    ]
    return [_group(cells) for cells in known if cells]


def _group(cells: Mapping[tuple[str, str], tuple[TableFigure, ...]]) -> CellGroup:
    rows, columns = ({place[side] for place in cells} for side in (0, 1))
    if len(rows) == 1:
        return CellGroup(rows.pop(), {column: each for (_, column), each in cells.items()})
    if len(columns) == 1:
        return CellGroup(columns.pop(), {row: each for (row, _), each in cells.items()})
    first = ", ".join(next(iter(cells)))
    return CellGroup(f"{first} and others", {", ".join(place): each for place, each in cells.items()})


def plot_name(kind: str, figure: str) -> str:
    """The name of a figure's plot."""
    return f"{kind}-" + "".join(sign if sign.isalnum() else "-" for sign in figure.lower())


def cell_plots(data: TableData) -> list[Plot]:
    """A plot for each figure that has a value, by cell, beside the printed values."""
    there = {each.name for each in data.figures if each.by_seed}
    return [_cells_plot(data, name) for name in data.names if name in there]


def group_plots(runs: Runs, data: TableData, draw_embeddings: EmbeddingPlots) -> PlotCollection:
    """For each group of cells the learning curves of all, and the embeddings of up to `MOST_SETTINGS`."""
    plots, left = list[Plot](), list[tuple[str, str]]()
    found = comparable_cells(data)
    for number, group in enumerate(found[:MOST_GROUPS], start=1):
        for made, reasons in (
            _learning(runs, group),
            draw_embeddings(group.chosen(data.higher, MOST_SETTINGS)),
        ):
            several = len(found) > 1
            plots += [_of_group(plot, number, group.title) for plot in made] if several else made
            left += [(f"{name}: {group.title}", why) for name, why in reasons] if several else reasons
    most = f"at most {MOST_GROUPS} groups of cells are drawn"
    return plots, left + [(f"what was learnt: {group.title}", most) for group in found[MOST_GROUPS:]]


def _learning(runs: Runs, group: CellGroup) -> PlotCollection:
    first = {name: figures[0] for name, figures in group.cells.items()}
    settings = {name: each.run_ids for name, each in first.items() if each.run_ids}
    known = [run for each in first.values() for run in each.runs if run is not None]
    metric = known[0].data.params.get("evaluation.metric", "") if known else ""
    return build_plots({"learning": lambda: learning_plot(metric, settings, runs.history)})


def _of_group(plot: Plot, number: int, title: str) -> Plot:
    return replace(plot, name=f"{plot.name}-{number}", title=f"{plot.title}: {title}")


def _cells_plot(data: TableData, name: str) -> Plot:
    points = [
        CellPoint(group.title, cell, each.mean, each.mean - spread, each.mean + spread, each.printed)
        for group in comparable_cells(data)
        for cell, figures in group.cells.items()
        for each in figures
        if each.name == name and each.mean is not None
        for spread in [each.deviation or 0.0]
    ]
    caption = (
        "A panel has the cells that saw the same data: means over the seeds, with their standard deviation."
    )
    if any(point.printed is not None for point in points):
        caption += " Hollow squares are the printed figures."
    return cells_plot(plot_name("cells", name), f"{name} by cell", caption, f"{name} ({data.unit})", points)
