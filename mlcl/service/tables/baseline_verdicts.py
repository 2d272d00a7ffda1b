"""Whether the best cell of a table beats the best baseline that saw the same rows."""

from __future__ import annotations

from collections.abc import Sequence

from mlcl.service.tables.summary import CellReport, FigureReport, TableReport
from mlcl.significance.baseline_verdict import BaselineVerdict, Contender, Role, compare_baselines


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
