"""Whether the best cell of a table beats the best baseline that saw the same rows."""

from __future__ import annotations

from collections.abc import Sequence

from mlcl.evaluation.baseline_verdict import BaselineVerdict, Contender, compare_baselines
from mlcl.service.tables.summary import CellReport, FigureReport, TableReport


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
        if not any(cell.baseline for cell in cells):
            continue
        for name in dict.fromkeys(figure.name for _, figure in known):
            its = [(cell, figure) for cell, figure in known if figure.name == name]
            models, baselines = (
                [_contender(_label(cell, shared), figure) for cell, figure in its if cell.baseline is side]
                for side in (False, True)
            )
            mode, digits = ("max" if report.higher[name] else "min"), its[0][1].digits
            verdict = compare_baselines(models, baselines, name, mode, digits)
            found += [] if verdict is None else [(shared, verdict)]
    return found


def verdict_sentences(report: TableReport) -> list[str]:
    """The verdicts in words."""
    return [f"{title}: {its.sentence}" if title else its.sentence for title, its in table_verdicts(report)]


def _shared(cells: Sequence[CellReport]) -> str:
    """The column that all cells are in, or else the row; empty where they share neither."""
    columns, rows = ({getattr(cell, side) for cell in cells} for side in ("column", "row"))
    return next((names.pop() for names in (columns, rows) if len(names) == 1), "")


def _label(cell: CellReport, shared: str) -> str:
    names = [name for name in (cell.row, cell.column) if name != shared]
    return ", ".join(names) or cell.row


def _contender(label: str, figure: FigureReport) -> Contender:
    validation, test = (
        {seed: value for seed, value in enumerate(values) if value is not None}
        for values in (figure.validation, figure.values)
    )
    return Contender(label, validation, test)
