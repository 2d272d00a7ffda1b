"""Renders a table as Markdown and LaTeX: our means beside the numbers that the paper prints."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from mlcl import markup
from mlcl.markup import one_line
from mlcl.results.cell_result import CellResult, FigureResult
from mlcl.results.table_result import TableResult
from mlcl.results.table_verdicts import MOST_SENTENCES, sentences_of

MAX_REASONS = 500
"""The largest number of characters of a cell's reasons below a table; the log of its run has all."""


def text_of(figure: FigureResult) -> str:
    """Formats a figure as `72.31 ± 0.42 (71.30) !`: mean, deviation, printed; `!`: out of tolerance."""
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
    counts = sorted({len(figure.values) for figure in figures})
    seeds = f"{counts[0]} to {counts[-1]}" if len(counts) > 1 else f"{counts[0]}"
    lines = ["One seed" if counts == [1] else f"Mean ± standard deviation over {seeds} seeds"]
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
    lines += [_markdown_table(*_grid(report)), "", *caption(report), *_missing(report)]
    if report.gains in report.rows:  # `--only` may leave the row out
        lines += ["", f"### Gains of {markup.markdown(report.gains)}", ""]
        lines += [_markdown_table(*gains_grid(report, report.gains))]
    for ranks in report.ranks:
        lines += ["", *_ranks(ranks)]
    if len(report.verdicts) > MOST_SENTENCES:
        said = (f"- {markup.markdown(sentence)}" for sentence in sentences_of(report.verdicts))
        lines += ["", "### Verdicts", "", *said]
    return "\n".join(lines) + "\n"


def _markdown_table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    escaped = [[markup.markdown(text) for text in row] for row in (heads, *rows)]
    return markup.markdown_table(escaped[0], escaped[1:])


def _missing(report: TableResult) -> list[str]:
    """Returns a line for each reason for missing values, with its cells, or whole rows and columns."""
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
    lines = [f"### {markup.markdown(ranks['metric'])} over data sets"]
    for sentence in ranks["sentences"]:
        lines += ["", markup.markdown(sentence)]
    for table in ranks.get("tables", ()):
        lines += ["", _markdown_table(table["heads"], table["rows"])]
    return lines


def latex(report: TableResult) -> str:
    """Renders the table as LaTeX (booktabs), followed by the tables of the tests over data sets."""
    notes = " ".join([*report.conclusions, *caption(report)]).replace("`", "")
    tables = [(f"{one_line(report.title)}. {notes}", *_grid(report))]
    if report.gains in report.rows:  # `--only` may leave the row out
        tables.append((f"Gains of {report.gains}", *gains_grid(report, report.gains)))
    for ranks in report.ranks:
        said = " ".join(ranks["sentences"])
        tables += [(said, table["heads"], table["rows"]) for table in ranks.get("tables", ())]
    texts = []
    for title, heads, rows in tables:
        escaped = [[markup.latex(text) for text in row] for row in (heads, *rows)]
        texts.append(markup.latex_table(markup.latex(title), escaped[0], escaped[1:]))
    return "\n\n".join(texts) + "\n"


def gains_grid(report: TableResult, row: str) -> tuple[list[str], list[list[str]]]:
    """Returns the heads and rows of a table with the gains of one row over each other row.

    A gain is the difference of the means, in the table's unit and as a share of the other mean. Values in
    parentheses are computed from the printed figures. The last row has the deviation over all rows.
    """
    places, found = _places(report), _figures(report)
    others = [each for each in report.rows if each != row]
    body = []
    for other in others:
        pairs = ((found.get((row, *place)), found.get((other, *place))) for place in places)
        body.append([f"over {other}", *("" if a is None or b is None else _gain(a, b) for a, b in pairs)])
    columns = [[found.get((each, *place)) for each in report.rows] for place in places]
    body.append(["deviation over the rows", *map(_spread, columns)])
    return ["", *places.values()], body


def _gain(figure: FigureResult, other: FigureResult) -> str:
    def between(one: float | None, base: float | None) -> str:
        if one is None or base is None:
            return "-"
        share = "" if base == 0 else f", {100 * (one - base) / base:+.1f} %"
        return f"{one - base:+.{figure.digits}f}{share}"

    printed = between(figure.printed, other.printed)
    return between(figure.mean, other.mean) + ("" if printed == "-" else f" ({printed})")


def _spread(figures: Sequence[FigureResult | None]) -> str:
    known = [figure for figure in figures if figure is not None]

    def over(values: Sequence[float | None]) -> str:
        numbers = [value for value in values if value is not None]
        if len(numbers) < max(2, len(values)):
            return "-"
        return f"{statistics.stdev(numbers):.{known[0].digits}f}"

    printed = over([figure.printed for figure in known])
    return over([figure.mean for figure in known]) + ("" if printed == "-" else f" ({printed})")


def _figures(report: TableResult) -> dict[tuple[str, str, str], FigureResult]:
    return {(cell.row, cell.column, each.name): each for cell in report.cells for each in cell.figures}


def _places(report: TableResult) -> dict[tuple[str, str], str]:
    """Returns the head of each column of cells and each of its metrics, keyed by column and metric."""
    places = dict[tuple[str, str], str]()
    for column in report.columns:
        cells = [cell for cell in report.cells if cell.column == column]
        names = list(dict.fromkeys(figure.name for cell in cells for figure in cell.figures))
        places |= {(column, name): column if len(names) == 1 else f"{column} {name}" for name in names}
    return places


def _grid(report: TableResult) -> tuple[list[str], list[list[str]]]:
    """Returns the heads and the rows of a table; a column of cells is split into one column per metric."""
    places, found = _places(report), _figures(report)
    body = []
    for row in report.rows:
        figures = [found.get((row, *place)) for place in places]
        body.append([row, *("" if f is None else text_of(f) for f in figures)])
    return ["", *places.values()], body
