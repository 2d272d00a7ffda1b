"""The content of a report as dataclasses, which are rendered as HTML and as Markdown."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mlcl.report.plots.charts import Plot

DIGITS = 4


@dataclass(frozen=True)
class ReportCell:
    """A cell of a table.

    `run_id` is the run whose page the text links to, empty for none. A number has its unrounded `value`, its
    `metric`, and the ids of the `runs` from which it can be computed again; `statistic` says which statistic
    of the runs' values it is, such as `mean` or `sd`; empty for the value of a single run. `best` is shown in
    bold, `shade` is the strength of the background colour, from 0 to 1.
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
class ReportTable:
    """A table of a report. The columns with an index in `left` are aligned left, other columns right."""

    heads: tuple[str, ...]
    rows: tuple[tuple[ReportCell, ...], ...]
    left: tuple[int, ...] = (0,)


@dataclass(frozen=True)
class Code:
    """A block with the text of a file or command, in a fixed-width font."""

    text: str


@dataclass(frozen=True)
class Picture:
    """A block with a plot, its caption and its table."""

    plot: Plot


@dataclass(frozen=True)
class Details:
    """A block with further blocks that stay hidden until the reader opens it."""

    title: str
    blocks: tuple[Block, ...]


Block = ReportTable | str | Code | Picture | Details
"""A block of a report; a `str` is a paragraph."""


@dataclass(frozen=True)
class ReportSection:
    """A section of a report: its heading and its blocks."""

    title: str
    blocks: tuple[Block, ...]


@dataclass(frozen=True)
class Document:
    """The content of a report.

    `about` is the line below the title, `missing` has the (name, reason) of each plot that could not be
    drawn, and `conclusions` are the verdicts as sentences.
    """

    title: str
    about: str
    sections: tuple[ReportSection, ...]
    missing: tuple[tuple[str, str], ...] = ()
    conclusions: tuple[str, ...] = ()

    @property
    def plots(self) -> list[Plot]:
        """All plots of the report, including hidden ones."""
        return [plot for section in self.sections for plot in _collect_plots(section.blocks)]


def _collect_plots(blocks: Sequence[Block]) -> list[Plot]:
    plots: list[Plot] = []
    for block in blocks:
        if isinstance(block, Picture):
            plots.append(block.plot)
        elif isinstance(block, Details):
            plots += _collect_plots(block.blocks)
    return plots


def plot_blocks(plots: Sequence[Plot], missing: Sequence[tuple[str, str]]) -> tuple[Block, ...]:
    """Returns blocks with the plots, and a hidden table of `missing`: (name, reason) of plots not drawn."""
    missing_rows = tuple(text_row(*item) for item in missing)
    blocks: list[Block] = [Picture(plot) for plot in plots]
    if missing_rows:
        blocks.append(Details("Not drawn", (ReportTable(("plot", "why"), missing_rows, left=(0, 1)),)))
    return tuple(blocks)


def number_cell(
    value: float | None, metric: str, runs: Sequence[str], statistic: str = "", *, form: str = f".{DIGITS}f"
) -> ReportCell:
    """Returns a cell with a metric's value, linked to its run if it has only one; an empty cell for None.

    `statistic` says which statistic of several runs the value is, such as `mean`.
    """
    if value is None:
        return ReportCell("")
    run_ids = tuple(run_id for run_id in runs if isinstance(run_id, str))  # None: a run not yet in MLflow
    link = run_ids[0] if run_ids and len(runs) == 1 else ""
    return ReportCell(f"{value:{form}}", link, float(value), metric, run_ids, statistic)


def value_text(value: object) -> str:
    """Returns a hyperparameter's value as text; floats have `DIGITS` significant digits, NaN is empty."""
    if isinstance(value, float):
        return "" if math.isnan(value) else f"{value:.{DIGITS}g}"
    return str(value)


def text_row(*texts: str) -> tuple[ReportCell, ...]:
    """Returns a row of cells with these texts."""
    return tuple(map(ReportCell, texts))


def provenance_table(provenance: Mapping[str, Sequence[str]], run_id: str, store: str) -> ReportTable:
    """Returns a table with the tracking store, the run, and the provenance, whose keys are titles."""
    rows = {"tracking store": [store], "MLflow run": [run_id], **provenance}
    texts = tuple(text_row(title, ", ".join(values)) for title, values in rows.items())
    return ReportTable(("what", "value"), texts, left=(0, 1))


def data_sections(notes: Mapping[str, Sequence[str]]) -> list[ReportSection]:
    """Returns a section with the notes on data sets, which are keyed by name; no section without notes."""
    paragraphs = tuple(f"{name}: {note}" for name, texts in notes.items() for note in texts)
    return [ReportSection("Data", paragraphs)] if paragraphs else []
