"""Tables for a terminal: columns that do not fit are left out, and no number is broken."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rich.console import Console, JustifyMethod
from rich.table import Table
from rich.text import Text

from mlcl.cli.output import results

GAP = 2
"""Spaces between two columns."""


@dataclass(frozen=True)
class Column:
    """A column with its cells. One of `texts` wraps at words. The largest `rank` goes first, 0 never."""

    head: str
    cells: Sequence[str]
    rank: int = 0
    texts: bool = False

    @property
    def least(self) -> int:
        """The width that it needs."""
        texts = (self.head, *self.cells)
        return max(len(part) for text in texts for part in (text.split() if self.texts else [text]) or [""])


def fitted_table(columns: Sequence[Column], title: str = "", console: Console = results) -> Table:
    """The table with as many columns as fit; those of rank 0 always stay."""
    kept = list(columns)
    while sum(each.least + GAP for each in kept) - GAP > console.width and any(each.rank for each in kept):
        kept.remove(max(kept, key=lambda each: each.rank))
    table = Table(title=Text(title), title_justify="left", box=None, padding=(0, GAP, 0, 0), pad_edge=False)
    for each in kept:
        # rich narrows the columns that may wrap, and no others.
        justify: JustifyMethod = "left" if each.texts else "right"
        table.add_column(Text(each.head), justify=justify, no_wrap=not each.texts, overflow="fold")
    for cells in zip(*(each.cells for each in kept), strict=True):
        table.add_row(*map(Text, cells))
    return table
