"""Groups of a table's cells that can be compared, because they have the same data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from mlcl.report.table_data import TableData, TableFigure


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
