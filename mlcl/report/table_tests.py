"""The paired tests of a reproduced table."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from mlcl.report.comparison_tables import smallest_p_note
from mlcl.report.document import Block, Cell, Table, Text, text_row
from mlcl.report.table_data import TableData, TableFigure
from mlcl.report.table_groups import CellGroup, comparable_cells
from mlcl.significance.paired_tests import LEVEL, Paired, compare_paired, holm


def paired_test_blocks(data: TableData) -> tuple[Block, ...]:
    """Each cell compared with the first of its group, with Holm's correction over the whole table."""
    tests = [test for group in comparable_cells(data) for test in _tests(group)]
    if not tests:
        return (Text("No two cells that saw the same rows share two seeds: there is nothing to test."),)
    adjusted = holm([test.paired.p for test in tests])
    several = len(data.names) > 1
    rows = [_row(test, p, several=several) for test, p in zip(tests, adjusted, strict=True)]
    heads = ("cells", "of", "against", "pairs", "difference", f"{LEVEL:.0%} interval", "p", "p (Holm)")
    about = (
        "Cells whose seeds saw the same rows, each against the first of them, over the seeds that both have."
    )
    said = smallest_p_note([test.paired.n for test in tests])
    return (Text(about), Table(heads, tuple(rows), left=(0, 1, 2)), Text(said))


class _Test(NamedTuple):
    """A figure of a cell compared with that of its name in the first cell of the group."""

    group: str
    against: str
    of: str
    figure: TableFigure
    paired: Paired


def _tests(group: CellGroup) -> Iterator[_Test]:
    (first, references), *others = group.cells.items()
    for name, figures in others:
        for reference, figure in zip(references, figures, strict=True):
            places = sorted(reference.by_seed.keys() & figure.by_seed.keys())
            if len(places) > 1:
                values = ([each.by_seed[place] for place in places] for each in (reference, figure))
                yield _Test(group.title, first, name, figure, compare_paired(*values))


def _row(test: _Test, p: float, *, several: bool) -> tuple[Cell, ...]:
    paired, digits = test.paired, test.figure.digits + 1
    interval = paired.interval
    between = "" if interval is None else f"{interval[0]:+.{digits}f} to {interval[1]:+.{digits}f}"
    cells = test.group + (f", {test.figure.name}" if several else "")
    difference = f"{paired.difference:+.{digits}f}"
    return text_row(
        cells, test.of, test.against, str(paired.n), difference, between, f"{paired.p:.3g}", f"{p:.3g}"
    )
