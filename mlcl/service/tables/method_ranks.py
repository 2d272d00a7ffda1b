"""The rows of a table, as methods, ranked and tested over its columns, as data sets."""

from __future__ import annotations

from typing import Any

from mlcl.config.table import Ranks
from mlcl.service.tables.summary import TableReport
from mlcl.significance.method_comparison import compare_methods
from mlcl.significance.method_comparison_text import as_dict
from mlcl.significance.rank_tests import LEAST


def ranked_figures(report: TableReport, ranks: Ranks) -> tuple[dict[str, Any], ...]:
    """One tree for each figure, as `table.json` and the report have it: at least `metric` and `sentences`.

    A cell counts where the figure of each of its seeds is there.
    """
    control = ranks.control or report.rows[0]
    names = dict.fromkeys(figure.name for cell in report.cells for figure in cell.figures)
    return tuple(_ranked(report, name, control, ranks.rope) for name in names)


def _ranked(report: TableReport, name: str, control: str, rope: float | None) -> dict[str, Any]:
    figures = {
        (cell.row, cell.column): figure
        for cell in report.cells
        for figure in cell.figures
        if figure.name == name and None not in figure.values
    }
    found = compare_methods(
        name,
        {place: dict(enumerate(figure.there)) for place, figure in figures.items()},
        report.rows,
        report.columns,
        higher=report.higher[name],
        control=control,
        rope=rope,
        digits=max((figure.digits for figure in figures.values()), default=2),
    )
    if found is not None:
        return as_dict(found)
    need = f"{LEAST} methods, {control} among them, and {LEAST} data sets with all cells between them"
    return {"metric": name, "sentences": [f"{name} is not ranked over data sets: this needs {need}."]}
