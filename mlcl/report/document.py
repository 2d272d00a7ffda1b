"""A report as data, so that HTML and Markdown say the same."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from mlcl.report.plots import Plot

DIGITS = 4


@dataclass(frozen=True)
class Cell:
    """A cell of a table. `run_id` is the run that it links to.

    A figure also has its full `value`, the `metric` that it is, and the runs that it is the mean (or the
    `statistic` named) of: whoever doubts it can compute it again.
    """

    text: str
    run_id: str = ""
    value: float | None = None
    metric: str = ""
    runs: tuple[str, ...] = ()
    statistic: str = ""


@dataclass(frozen=True)
class Table:
    """Columns in `left` are ranged left, the others right."""

    heads: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    left: tuple[int, ...] = (0,)


@dataclass(frozen=True)
class Text:
    """A paragraph."""

    text: str


@dataclass(frozen=True)
class Code:
    """Text as it is: a file."""

    text: str


@dataclass(frozen=True)
class Picture:
    """A plot with its caption, and its table behind it."""

    plot: Plot


@dataclass(frozen=True)
class Fold:
    """Blocks that are shown when they are asked for."""

    title: str
    blocks: tuple[Block, ...]


Block = Table | Text | Code | Picture | Fold


@dataclass(frozen=True)
class Section:
    """A heading with what stands under it."""

    title: str
    blocks: tuple[Block, ...]


@dataclass(frozen=True)
class Document:
    """A report. `missing` has the (name, reason) of each plot that could not be drawn."""

    title: str
    about: str
    sections: tuple[Section, ...]
    missing: tuple[tuple[str, str], ...] = ()

    @property
    def plots(self) -> list[Plot]:
        """All of its plots."""
        return [plot for section in self.sections for plot in _plots(section.blocks)]


def _plots(blocks: Sequence[Block]) -> list[Plot]:
    found: list[Plot] = []
    for block in blocks:
        if isinstance(block, Picture):
            found.append(block.plot)
        elif isinstance(block, Fold):
            found += _plots(block.blocks)
    return found


def pictures(plots: Sequence[Plot], missing: Sequence[tuple[str, str]]) -> tuple[Block, ...]:
    """The plots, and behind a fold the (name, reason) of each that could not be drawn."""
    left_out = tuple(words(*item) for item in missing)
    blocks: list[Block] = [Picture(plot) for plot in plots]
    if left_out:
        blocks.append(Fold("Not drawn", (Table(("plot", "why"), left_out, left=(0, 1)),)))
    return tuple(blocks)


def figure(value: float, metric: str, runs: Sequence[str], statistic: str = "", run_id: str = "") -> Cell:
    """A metric's value, to `DIGITS` digits; links to `run_id`, by default the one run that it is of."""
    link = run_id or (runs[0] if len(runs) == 1 else "")
    return Cell(f"{value:.{DIGITS}f}", link, float(value), metric, tuple(runs), statistic)


def words(*texts: str) -> tuple[Cell, ...]:
    """A row of text."""
    return tuple(map(Cell, texts))
