"""A comparison as blocks of a report."""

from __future__ import annotations

from mlcl.report.comparison import Comparison, Row
from mlcl.report.comparison_tables import DIGITS, HEADS, LEFT, grid, notes, title
from mlcl.report.document import Block, Cell, Table, Text, number_cell


def comparison_blocks(found: Comparison) -> tuple[Block, ...]:
    """All settings compared with the reference: the table and the notes below it."""
    return (Text(title(found)), _table(found), *map(Text, notes(found)))


def _table(found: Comparison) -> Table:
    texts = grid(found)
    first, *others = (list(map(Cell, row)) for row in texts)
    for cells, row in zip(others, found.rows, strict=True):
        cells[3] = _difference(found, row)
    return Table(HEADS, (tuple(first), *map(tuple, others)), left=LEFT)


def _difference(found: Comparison, row: Row) -> Cell:
    pairs = [setting.runs[seed].run_id for setting in (found.reference, row.setting) for seed in row.seeds]
    return number_cell(row.paired.difference, found.metric, pairs, "difference", form=f"+.{DIGITS}f")
