"""A report as data, from which HTML and Markdown are written."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mlcl.report.plots.charts import Plot

DIGITS = 4


@dataclass(frozen=True)
class Cell:
    """A cell of a table. `run_id` is the run that it links to.

    A number also has its full `value`, its `metric`, and the `runs` from which it can be computed again: it
    is their mean, or the `statistic` named. The `best` of several is bold; `shade` in [0, 1] colours it.
    """

    text: str
    run_id: str = ""
    value: float | None = None
    metric: str = ""
    runs: tuple[str, ...] = ()
    statistic: str = ""
    best: bool = False
    shade: float = 0.0


@dataclass(frozen=True)
class Table:
    """A table of a report, as text cells. Columns in `left` are aligned left, the others right."""

    heads: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    left: tuple[int, ...] = (0,)


@dataclass(frozen=True)
class Text:
    """A paragraph."""

    text: str


@dataclass(frozen=True)
class Code:
    """The text of a file."""

    text: str


@dataclass(frozen=True)
class Picture:
    """A plot with its caption and its table."""

    plot: Plot


@dataclass(frozen=True)
class Details:
    """Blocks that are hidden until they are opened."""

    title: str
    blocks: tuple[Block, ...]


Block = Table | Text | Code | Picture | Details


@dataclass(frozen=True)
class Section:
    """A heading with its blocks."""

    title: str
    blocks: tuple[Block, ...]


@dataclass(frozen=True)
class Document:
    """A report. `missing` has the (name, reason) of each plot that could not be drawn.

    `conclusions` are the verdicts in words.
    """

    title: str
    about: str
    sections: tuple[Section, ...]
    missing: tuple[tuple[str, str], ...] = ()
    conclusions: tuple[str, ...] = ()

    @property
    def plots(self) -> list[Plot]:
        """All plots of the report."""
        return [plot for section in self.sections for plot in _plots(section.blocks)]


def _plots(blocks: Sequence[Block]) -> list[Plot]:
    found: list[Plot] = []
    for block in blocks:
        if isinstance(block, Picture):
            found.append(block.plot)
        elif isinstance(block, Details):
            found += _plots(block.blocks)
    return found


def plot_blocks(plots: Sequence[Plot], missing: Sequence[tuple[str, str]]) -> tuple[Block, ...]:
    """The plots, then a hidden table with the (name, reason) of each that could not be drawn."""
    left_out = tuple(text_row(*item) for item in missing)
    blocks: list[Block] = [Picture(plot) for plot in plots]
    if left_out:
        blocks.append(Details("Not drawn", (Table(("plot", "why"), left_out, left=(0, 1)),)))
    return tuple(blocks)


def number_cell(
    value: float | None,
    metric: str,
    runs: Sequence[str],
    statistic: str = "",
    *,
    form: str = f".{DIGITS}f",
) -> Cell:
    """A metric's value, linked to its run where there is only one; empty for None."""
    if value is None:
        return Cell("")
    link = runs[0] if len(runs) == 1 else ""
    return Cell(f"{value:{form}}", link, float(value), metric, tuple(runs), statistic)


def value_text(value: object) -> str:
    """A value of a setting as text; numbers have `DIGITS` significant digits."""
    if isinstance(value, float):
        return "" if math.isnan(value) else f"{value:.{DIGITS}g}"
    return str(value)


def text_row(*texts: str) -> tuple[Cell, ...]:
    """A row of text."""
    return tuple(map(Cell, texts))


def provenance_table(provenance: Mapping[str, Sequence[str]], run_id: str, store: str) -> Table:
    """A table of the origin of results: the tracking store, the run, and the provenance by title."""
    rows = {"tracking store": [store], "MLflow run": [run_id], **provenance}
    texts = tuple(text_row(title, ", ".join(values)) for title, values in rows.items())
    return Table(("what", "value"), texts, left=(0, 1))


def data_sections(notes: Mapping[str, Sequence[str]]) -> list[Section]:
    """The section with the notes on data sets, by the data set's name; empty without a note."""
    found = [Text(f"{name}: {note}") for name, its in notes.items() for note in its]
    return [Section("Data", tuple(found))] if found else []
