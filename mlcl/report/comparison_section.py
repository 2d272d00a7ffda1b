"""Comparisons as blocks of a report."""

from __future__ import annotations

from collections.abc import Sequence

from mlcl.errors import UserError
from mlcl.report.compared_settings import ComparedSetting
from mlcl.report.comparison import Comparison, Row, compare_settings
from mlcl.report.comparison_tables import DIGITS, HEADS, LEFT, grid, notes, title
from mlcl.report.document import Block, Cell, Table, Text, number_cell


def comparison_blocks(settings: Sequence[ComparedSetting], metrics: Sequence[str]) -> tuple[Block, ...]:
    """All settings compared with the first by each metric, or the reason why they cannot be."""
    blocks: list[Block] = []
    complete = [setting for setting in settings if setting.runs]
    for metric in metrics:
        try:
            found = compare_settings(complete, metric)
        except UserError as error:
            return (*blocks, Text(f"No test: {error.line()}."))
        blocks += [Text(title(found)), _table(found), *map(Text, notes(found))]
    return tuple(blocks)


def _table(found: Comparison) -> Table:
    texts = grid(found)
    first, *others = (list(map(Cell, row)) for row in texts)
    for cells, row in zip(others, found.rows, strict=True):
        cells[3] = _difference(found, row)
    return Table(HEADS, (tuple(first), *map(tuple, others)), left=LEFT)


def _difference(found: Comparison, row: Row) -> Cell:
    pairs = [setting.runs[seed].run_id for setting in (found.reference, row.setting) for seed in row.seeds]
    return number_cell(row.paired.difference, found.metric, pairs, "difference", form=f"+.{DIGITS}f")
