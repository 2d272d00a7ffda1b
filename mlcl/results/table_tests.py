"""Statistical tests on a table's figures: its rows are methods, its columns data sets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from mlcl.config.table.schema import RankTests
from mlcl.results.cell_result import CellResult
from mlcl.significance.method_comparison import compare_methods
from mlcl.significance.method_comparison_text import as_dict
from mlcl.significance.rank_tests import LEAST


def ranked_figures(
    cells: Sequence[CellResult], higher: Mapping[str, bool], ranks: RankTests
) -> tuple[dict[str, Any], ...]:
    """Ranks the rows of a table (methods) over its columns (data sets), for each figure.

    Returns a dict for each figure as `table.json` has it, with at least `metric` and `sentences`. A cell
    counts if all of its seeds have the figure. A row that lacks the cell of some column in the table is left
    out, so that the other rows keep this data set.

    Args:
        cells: The cells of a table.
        higher: Whether larger values are better, keyed by the name of a figure.
        ranks: The table file's options: the control, the region of practical equivalence (`rope`), and the
            rows to leave out.
    """
    names = dict.fromkeys(figure.name for cell in cells for figure in cell.figures)
    return tuple(_ranked(cells, name, ranks, higher=higher[name]) for name in names)


def _ranked(cells: Sequence[CellResult], name: str, ranks: RankTests, *, higher: bool) -> dict[str, Any]:
    rows, columns = ([*dict.fromkeys(getattr(each, side) for each in cells)] for side in ("row", "column"))
    control = ranks.control or next((row for row in rows if row not in ranks.leave_out), "")
    kept = {row for row in rows if len({cell.column for cell in cells if cell.row == row}) < len(columns)}
    whole = [
        (cell, figure)
        for cell in cells
        for figure in cell.figures
        if figure.name == name and None not in figure.values and cell.row not in kept
    ]
    found = compare_methods(
        name,
        {(cell.row, cell.column): figure.by_seed for cell, figure in whole},
        rows,
        columns,
        higher=higher,
        control=control,
        rope=ranks.rope,
        digits=max((figure.digits for _, figure in whole), default=2),
        leave_out=ranks.leave_out,
    )
    if found is not None:
        return as_dict(found)
    need = f"{LEAST} methods, {control} among them, and {LEAST} data sets with all cells between them"
    return {"metric": name, "sentences": [f"{name} is not ranked over data sets: this needs {need}."]}
