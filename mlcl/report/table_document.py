"""The report of a reproduced table: ours beside the printed figures, each seed linked, columns tested."""

from __future__ import annotations

from itertools import combinations

from mlcl.evaluation.paired import LEVEL, Paired, compare_paired, holm, smallest_p
from mlcl.report.document import (
    Block,
    Cell,
    Code,
    Document,
    Fold,
    Picture,
    Section,
    Table,
    Text,
    figure,
    pictures,
    words,
)
from mlcl.report.plots.gather import Gathered
from mlcl.report.provenance import provenance_table
from mlcl.report.runs import Runs
from mlcl.report.table_data import TableData, TableFigure
from mlcl.report.table_plots import cell_plots


def table_document(runs: Runs, data: TableData, gathered: Gathered) -> Document:
    """The report, with the plots of what was learnt."""
    plots, missing = gathered
    sections = [
        Section("Result", (Text(data.about or data.title), _results(data), *map(Picture, cell_plots(data)))),
        Section("Tests", _tests(data)),
        Section("Every seed", (_seeds(data),)),
        Section("Plots", pictures(plots, missing)),
        Section("Where it comes from", _source(runs, data)),
    ]
    about = f"{data.source}. Table {data.id} ({data.name}), {data.state}"
    return Document(data.title, about, tuple(sections), tuple(missing))


def _label(data: TableData, each: TableFigure) -> str:
    return f"{each.row}, {each.column}" + (f", {each.name}" if len(data.names) > 1 else "")


def _results(data: TableData) -> Table:
    heads = ("cell", "seeds", f"mean ({data.unit})", "± sd", "printed", "difference", "verdict")
    return Table(heads, tuple(_result(data, each) for each in data.figures), left=(0, 6))


def _result(data: TableData, each: TableFigure) -> tuple[Cell, ...]:
    mean, printed = each.mean, each.printed
    return (
        Cell(_label(data, each)),
        Cell(f"{len(each.there)} of {len(each.values)}"),
        _number(each, mean, "mean"),
        _number(each, each.deviation, "sd"),
        Cell("" if printed is None else f"{printed:.{each.digits}f}"),
        Cell("" if mean is None or printed is None else f"{mean - printed:+.{each.digits}f}"),
        Cell(each.verdict),
    )


def _number(each: TableFigure, value: float | None, statistic: str) -> Cell:
    if value is None:
        return Cell("")
    cell = figure(value, each.metric, each.run_ids, statistic)
    return Cell(f"{value:.{each.digits}f}", cell.run_id, value, each.metric, cell.runs, statistic)


def _seeds(data: TableData) -> Table:
    most = max(len(each.values) for each in data.figures)
    heads = ("cell", *(f"seed {place}" for place in range(most)))
    rows = [
        (Cell(_label(data, each)), *(_seed(each, place) for place in range(most))) for each in data.figures
    ]
    return Table(heads, tuple(rows))


def _seed(each: TableFigure, place: int) -> Cell:
    run, value = (each.runs[place], each.values[place]) if place < len(each.values) else (None, None)
    if value is None:
        return Cell("")
    ids = [] if run is None else [str(run.info.run_id)]
    cell = figure(value, each.metric, ids)
    return Cell(f"{value:.{each.digits}f}", cell.run_id, value, each.metric, cell.runs)


def _tests(data: TableData) -> tuple[Block, ...]:
    """Within each row, all columns against each other over the same seeds; Holm over the whole table."""
    pairs = [
        (a, b)
        for a, b in combinations(data.figures, 2)
        if (a.row, a.name) == (b.row, b.name) and len(a.there.keys() & b.there.keys()) > 1
    ]
    if not pairs:
        return (Text("No two columns of a row share two seeds: there is nothing to test."),)
    found = [_paired(a, b) for a, b in pairs]
    adjusted = holm([paired.p for paired in found])
    rows = [_test(data, a, b, paired, p) for (a, b), paired, p in zip(pairs, found, adjusted, strict=True)]
    n = min(paired.n for paired in found)
    least = min(1.0, smallest_p(n) * len(found))
    heads = ("row", "of", "against", "pairs", "difference", f"{LEVEL:.0%} interval", "p", "p (Holm)")
    tests = f"{len(found)} test{'' if len(found) == 1 else 's'}"
    said = f"{n} pairs can reach p = {least:.3g} over {tests}."
    if least > 1 - LEVEL:
        said += " That decides nothing: more seeds, or fewer tests (mlcl compare), are needed."
    return (Table(heads, tuple(rows), left=(0, 1, 2)), Text(said))


def _paired(a: TableFigure, b: TableFigure) -> Paired:
    places = sorted(a.there.keys() & b.there.keys())
    return compare_paired([a.there[place] for place in places], [b.there[place] for place in places])


def _test(data: TableData, a: TableFigure, b: TableFigure, paired: Paired, p: float) -> tuple[Cell, ...]:
    digits = a.digits + 1
    interval = paired.interval
    between = "" if interval is None else f"{interval[0]:+.{digits}f} to {interval[1]:+.{digits}f}"
    row = a.row + (f", {a.name}" if len(data.names) > 1 else "")
    difference = f"{paired.difference:+.{digits}f}"
    return words(row, b.column, a.column, str(paired.n), difference, between, f"{paired.p:.3g}", f"{p:.3g}")


def _source(runs: Runs, data: TableData) -> tuple[Block, ...]:
    source = provenance_table(data.run, data.trainings, runs.tracker.shown)
    return (source, Fold("The command", (Code(data.command),)))
