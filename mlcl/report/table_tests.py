"""The paired tests of a reproduced table."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from mlcl.evaluation.paired_tests import LEVEL, Paired, compare_paired, holm
from mlcl.report.comparison_tables import smallest_p_note
from mlcl.report.document import Block, Cell, Table, Text, text_row
from mlcl.report.table_data import TableData, TableFigure
from mlcl.report.table_groups import CellGroup, comparable_cells


def paired_test_blocks(data: TableData) -> tuple[Block, ...]:
    """Each cell compared with the first of its group, with Holm's correction over the whole table."""
    pairs = [pair for group in comparable_cells(data) for pair in _pairs(group)]
    if not pairs:
        return (Text("No two cells that saw the same rows share two seeds: there is nothing to test."),)
    found = [_paired(pair.reference, pair.other) for pair in pairs]
    adjusted = holm([paired.p for paired in found])
    several = len(data.names) > 1
    rows = [_test(*each, several=several) for each in zip(pairs, found, adjusted, strict=True)]
    heads = ("cells", "of", "against", "pairs", "difference", f"{LEVEL:.0%} interval", "p", "p (Holm)")
    about = (
        "Cells whose seeds saw the same rows, each against the first of them, over the seeds that both have."
    )
    said = smallest_p_note([paired.n for paired in found])
    return (Text(about), Table(heads, tuple(rows), left=(0, 1, 2)), Text(said))


class _Pair(NamedTuple):
    """Two figures of one name in one group of cells."""

    group: str
    against: str
    of: str
    reference: TableFigure
    other: TableFigure


def _pairs(group: CellGroup) -> Iterator[_Pair]:
    (first, references), *others = group.cells.items()
    for name, figures in others:
        for reference, other in zip(references, figures, strict=True):
            if len(reference.by_seed.keys() & other.by_seed.keys()) > 1:
                yield _Pair(group.title, first, name, reference, other)


def _paired(a: TableFigure, b: TableFigure) -> Paired:
    places = sorted(a.by_seed.keys() & b.by_seed.keys())
    return compare_paired([a.by_seed[place] for place in places], [b.by_seed[place] for place in places])


def _test(pair: _Pair, paired: Paired, p: float, *, several: bool) -> tuple[Cell, ...]:
    digits = pair.other.digits + 1
    interval = paired.interval
    between = "" if interval is None else f"{interval[0]:+.{digits}f} to {interval[1]:+.{digits}f}"
    cells = pair.group + (f", {pair.other.name}" if several else "")
    difference = f"{paired.difference:+.{digits}f}"
    return text_row(
        cells, pair.of, pair.against, str(paired.n), difference, between, f"{paired.p:.3g}", f"{p:.3g}"
    )
