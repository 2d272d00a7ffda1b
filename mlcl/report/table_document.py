"""The report of a reproduced table: our figures beside the printed ones, every seed, paired tests."""

from __future__ import annotations

from mlcl.report.document import (
    Block,
    Cell,
    Code,
    Details,
    Document,
    Picture,
    Section,
    Table,
    Text,
    number_cell,
    plot_blocks,
)
from mlcl.report.plots.plot import PlotCollection
from mlcl.report.provenance import data_sections, provenance_table
from mlcl.report.runs import Runs
from mlcl.report.table_data import TableData, TableFigure
from mlcl.report.table_plots import cell_plots
from mlcl.report.table_sections import matrix_blocks, paired_test_blocks, rank_sections, search_sections


def table_document(runs: Runs, data: TableData, collection: PlotCollection) -> Document:
    """The report with its plots."""
    plots, missing = collection
    said = map(Text, (*data.verdicts, data.about or data.title))
    matrices = [block for name in data.names for block in matrix_blocks(data, name)]
    sections = [
        Section("Result", (*said, *matrices)),
        *rank_sections(data.ranks),
        Section("Tests", paired_test_blocks(data)),
        *search_sections(data),
        Section("Every cell", (_results(data), *map(Picture, cell_plots(data)))),
        Section("Every seed", (_seeds(data),)),
        Section("Plots", plot_blocks(plots, missing)),
        *data_sections(data.trainings),
        Section("Where it comes from", _source(runs, data)),
    ]
    source = f"{data.source}. Table {data.id} ({data.name}), {data.state}"
    return Document(data.title, source, tuple(sections), tuple(missing), data.verdicts)


def _label(data: TableData, each: TableFigure) -> str:
    return f"{each.row}, {each.column}" + (f", {each.name}" if len(data.names) > 1 else "")


def _results(data: TableData) -> Table:
    heads = ("cell", "seeds", f"mean ({data.unit})", "± sd", "printed", "difference", "verdict")
    return Table(heads, tuple(_result(data, each) for each in data.figures), left=(0, 6))


def _result(data: TableData, each: TableFigure) -> tuple[Cell, ...]:
    mean, printed = each.mean, each.printed
    return (
        Cell(_label(data, each)),
        Cell(f"{len(each.by_seed)} of {len(each.values)}"),
        number_cell(mean, each.metric, each.run_ids, "mean", form=f".{each.digits}f"),
        number_cell(each.deviation, each.metric, each.run_ids, "sd", form=f".{each.digits}f"),
        Cell("" if printed is None else f"{printed:.{each.digits}f}"),
        Cell("" if mean is None or printed is None else f"{mean - printed:+.{each.digits}f}"),
        Cell(each.verdict),
    )


def _seeds(data: TableData) -> Table:
    most = max(len(each.values) for each in data.figures)
    heads = ("cell", *(f"seed {place}" for place in range(most)))
    rows = [
        (Cell(_label(data, each)), *(_seed(each, place) for place in range(most))) for each in data.figures
    ]
    return Table(heads, tuple(rows))


def _seed(each: TableFigure, place: int) -> Cell:
    run, value = (each.runs[place], each.values[place]) if place < len(each.values) else (None, None)
    ids = [] if run is None else [str(run.info.run_id)]
    return number_cell(value, each.metric, ids, form=f".{each.digits}f")


def _source(runs: Runs, data: TableData) -> tuple[Block, ...]:
    source = provenance_table(data.run, data.trainings, runs.tracker.shown)
    return (source, Details("The command", (Code(data.command),)))
