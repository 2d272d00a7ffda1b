"""The searches of a table's tuned cells, and how much of what they gained fresh seeds keep."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mlcl.report.document import Block, Cell, Section, Table, Text
from mlcl.report.table_data import TableData

ABOUT = (
    "Scores are on validation: of the median and the best complete trial, which have one seed, and the mean "
    "of the best setting over fresh seeds. Kept is the share of the best trial's lead over the median one "
    "that is left on fresh seeds; below 0 the best was no better than the median."
)
HEADS = ("cell", "score", "trials", "median trial", "best trial", "fresh seeds", "kept", "found")


def search_sections(data: TableData) -> list[Section]:
    """One section, none without tuned cells."""
    if not data.searches:
        return []
    rows = tuple(_row(f"{row}, {column}", cell) for (row, column), cell in data.searches.items())
    blocks: tuple[Block, ...] = (Text(ABOUT), Table(HEADS, rows, left=(0, 1, 2, 7)))
    return [Section("Searches", blocks)]


def _row(name: str, cell: Mapping[str, Any]) -> tuple[Cell, ...]:
    its, settings = cell["search"], cell.get("settings") or {}
    scores = [Cell("" if its[key] is None else f"{its[key]:.4f}") for key in ("median", "best", "fresh")]
    return (
        Cell(name),
        Cell(f"{its['metric']} ({its['mode']})"),
        Cell(", ".join(f"{count} {state}" for state, count in its["trials"].items())),
        *scores,
        Cell("" if its["kept"] is None else f"{its['kept']:.0%}"),
        Cell(", ".join(f"{key}={_value(value)}" for key, value in settings.items())),
    )


def _value(value: object) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)
