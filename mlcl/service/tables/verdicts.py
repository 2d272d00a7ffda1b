"""Tests of a table's figures: the best cell against the best baseline, and methods over data sets."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from mlcl.config.table import RankTests
from mlcl.service.tables.summary import CellReport, FigureReport, TableReport
from mlcl.significance.baseline_verdict import BaselineVerdict, Contender, Role, compare_baselines
from mlcl.significance.method_comparison import compare_methods
from mlcl.significance.method_comparison_text import as_dict
from mlcl.significance.rank_tests import LEAST


def table_verdicts(report: TableReport) -> list[tuple[str, BaselineVerdict]]:
    """One for each figure of each group of cells with the same rows and labels, with what the group shares.

    Groups without a baseline, or with nothing else, have none.
    """
    groups: dict[str, list[CellReport]] = {}
    for cell in report.cells:
        groups.setdefault(cell.data, []).append(cell)
    found = []
    for cells in groups.values():
        shared, known = _shared(cells), [(cell, figure) for cell in cells for figure in cell.figures]
        for name in dict.fromkeys(figure.name for _, figure in known):
            its = [(cell, figure) for cell, figure in known if figure.name == name]
            contenders = [_contender(cell, shared, figure) for cell, figure in its]
            mode, digits = ("max" if report.higher[name] else "min"), its[0][1].digits
            verdict = compare_baselines(contenders, name, mode, digits)
            found += [] if verdict is None else [(shared, verdict)]
    return found


def verdict_sentences(report: TableReport) -> list[str]:
    """The verdicts in words."""
    return [f"{title}: {its.sentence}" if title else its.sentence for title, its in table_verdicts(report)]


def _shared(cells: Sequence[CellReport]) -> str:
    """The column that all cells are in, or else the row; empty where they share neither."""
    columns, rows = ({getattr(cell, side) for cell in cells} for side in ("column", "row"))
    return next((names.pop() for names in (columns, rows) if len(names) == 1), "")


def _contender(cell: CellReport, shared: str, figure: FigureReport) -> Contender:
    label = ", ".join(name for name in (cell.row, cell.column) if name != shared) or cell.row
    validation, test = (
        {seed: value for seed, value in enumerate(values) if value is not None}
        for values in (figure.validation, figure.values)
    )
    return Contender(label, Role.BASELINE if cell.baseline else Role.MODEL, validation, test)


def ranked_figures(report: TableReport, ranks: RankTests) -> tuple[dict[str, Any], ...]:
    """One tree for each figure, as `table.json` and the report have it: at least `metric` and `sentences`.

    A cell counts where the figure of each of its seeds is there. A row that the table keeps from some of the
    columns is left out, so that it does not cost the others these data sets.
    """
    names = dict.fromkeys(figure.name for cell in report.cells for figure in cell.figures)
    return tuple(_ranked(report, name, ranks) for name in names)


def _ranked(report: TableReport, name: str, ranks: RankTests) -> dict[str, Any]:
    control = ranks.control or next((row for row in report.rows if row not in ranks.leave_out), "")
    asked = Counter(cell.row for cell in report.cells)
    figures = {
        (cell.row, cell.column): figure
        for cell in report.cells
        for figure in cell.figures
        if figure.name == name and None not in figure.values and asked[cell.row] == len(report.columns)
    }
    found = compare_methods(
        name,
        {place: dict(enumerate(figure.there)) for place, figure in figures.items()},
        report.rows,
        report.columns,
        higher=report.higher[name],
        control=control,
        rope=ranks.rope,
        digits=max((figure.digits for figure in figures.values()), default=2),
        leave_out=ranks.leave_out,
    )
    if found is not None:
        return as_dict(found)
    need = f"{LEAST} methods, {control} among them, and {LEAST} data sets with all cells between them"
    return {"metric": name, "sentences": [f"{name} is not ranked over data sets: this needs {need}."]}
