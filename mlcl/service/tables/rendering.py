"""Renders a table as Markdown and LaTeX: our means beside the numbers that the paper prints."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from mlcl import markup
from mlcl.markup import one_line
from mlcl.results.cell_result import CellResult, FigureResult
from mlcl.results.table_result import TableResult
from mlcl.results.table_verdicts import MOST_SENTENCES, sentences_of

MAX_REASONS = 500
"""The largest number of characters of a cell's reasons below a table; the log of its run has all."""


def text_of(figure: FigureResult) -> str:
    """Formats a figure as mean, standard deviation and printed number, such as `72.31 ± 0.42 (71.30) !`.

    The `!` marks a mean out of tolerance. If seeds are missing, their number is shown as `[2 of 3]`.
    """
    mean, digits = figure.mean, figure.digits
    if mean is None:
        ours = "-"
    else:
        spread = "" if figure.deviation is None else f" ± {figure.deviation:.{digits}f}"
        ours = f"{mean:.{digits}f}{spread}"
        if figure.verdict == "missing":
            ours += f" [{len(figure.by_seed)} of {len(figure.values)}]"
    printed = "" if figure.printed is None else f" ({figure.printed:.{digits}f})"
    return ours + printed + (" !" if figure.verdict == "outside" else "")


def caption(report: TableResult) -> list[str]:
    """Returns the lines below a table: how to read it, and its differences to the paper."""
    figures = [figure for cell in report.cells for figure in cell.figures]
    seeds = len(figures[0].values)
    lines = ["One seed" if seeds == 1 else f"Mean ± standard deviation over {seeds} seeds"]
    lines[0] += "; in parentheses the printed figure." if report.printed else "; no figures are printed."
    if report.limits:
        limits = {f"{limit:g}" for limit in report.limits.values()}
        each = ", ".join(f"{limit:g} ({name})" for name, limit in report.limits.items())
        lines.append(
            f"`!` marks a mean that is more than {limits.pop() if len(limits) == 1 else each} from the"
            f" printed figure ({len(report.outside)} of {report.judged})."
        )
    elif report.printed:
        lines.append("Figures are shown beside each other and not judged: this is not the paper's setting.")
    return lines + ([one_line(report.about)] if report.about else [])


def markdown(report: TableResult) -> str:
    """Renders the table as Markdown, with title, caption, tests over data sets and verdicts."""
    lines = [f"## {one_line(report.title)}", ""]
    for sentence in report.conclusions:
        lines += [markup.markdown(sentence), ""]
    lines += [f"{one_line(report.source)}; `{report.command}`.", ""]
    heads, body = _grid(report)
    rows = [[markup.markdown(text) for text in row] for row in body]
    lines += [markup.markdown_table([markup.markdown(head) for head in heads], rows), ""]
    lines += caption(report)
    lines += _missing(report)
    for ranks in report.ranks:
        lines += ["", *_ranks(ranks)]
    if len(report.verdicts) > MOST_SENTENCES:
        said = (f"- {markup.markdown(sentence)}" for sentence in sentences_of(report.verdicts))
        lines += ["", "### Verdicts", "", *said]
    return "\n".join(lines) + "\n"


def _missing(report: TableResult) -> list[str]:
    """Returns a line for each reason for missing values, which names its cells.

    A row or column whose cells all have missing values is named as a whole.
    """
    found: dict[str, list[CellResult]] = {}
    for cell in report.cells:
        if any(figure.verdict == "missing" for figure in cell.figures):
            reason = one_line("; ".join(cell.reasons)) or "not run"
            reason = reason if len(reason) <= MAX_REASONS else reason[:MAX_REASONS] + "..."
            found.setdefault(reason, []).append(cell)
    every = Counter(name for cell in report.cells for name in (cell.column, cell.row))
    lines = []
    for reason, cells in found.items():
        here = Counter(name for cell in cells for name in (cell.column, cell.row))
        whole = {name for name, count in here.items() if 1 < count == every[name]}
        names = [next((f"all of {x}" for x in (c.column, c.row) if x in whole), c.id) for c in cells]
        lines.append(f"Missing in {one_line(', '.join(dict.fromkeys(names)))}: {reason}.")
    return lines


def _ranks(ranks: Mapping[str, Any]) -> list[str]:
    """Returns the Markdown lines of the rank tests of one metric over data sets."""
    lines = [f"### {markup.markdown(ranks['metric'])} over data sets"]
    for sentence in ranks["sentences"]:
        lines += ["", markup.markdown(sentence)]
    for table in ranks.get("tables", ()):
        heads, *rows = ([markup.markdown(text) for text in row] for row in (table["heads"], *table["rows"]))
        lines += ["", markup.markdown_table(heads, rows)]
    return lines


def latex(report: TableResult) -> str:
    """Renders the table as LaTeX (booktabs), followed by the tables of the tests over data sets."""
    heads, body = _grid(report)
    notes = " ".join([*report.conclusions, *caption(report)]).replace("`", "")
    rows = [[markup.latex(text) for text in row] for row in body]
    heading = f"{markup.latex(report.title)}. {markup.latex(notes)}"
    tables = [markup.latex_table(heading, [markup.latex(head) for head in heads], rows)]
    for ranks in report.ranks:
        said = markup.latex(" ".join(ranks["sentences"]))
        for table in ranks.get("tables", ()):
            lines = [[markup.latex(text) for text in row] for row in (table["heads"], *table["rows"])]
            tables.append(markup.latex_table(said, lines[0], lines[1:]))
    return "\n\n".join(tables) + "\n"


def _grid(report: TableResult) -> tuple[list[str], list[list[str]]]:
    """Returns the heads and the rows of a table; a column of cells is split into one column per metric."""
    heads, places = [""], list[tuple[str, str]]()
    for column in report.columns:
        cells = [cell for cell in report.cells if cell.column == column]
        names = list(dict.fromkeys(figure.name for cell in cells for figure in cell.figures))
        heads += [column] if len(names) == 1 else [f"{column} {name}" for name in names]
        places += [(column, name) for name in names]
    body = []
    for row in report.rows:
        found = {c.column: {f.name: f for f in c.figures} for c in report.cells if c.row == row}
        figures = [found.get(column, {}).get(name) for column, name in places]
        body.append([row, *("" if f is None else text_of(f) for f in figures)])
    return heads, body
