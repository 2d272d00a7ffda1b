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
        mean_text = "-"
    else:
        spread = "" if figure.deviation is None else f" ± {figure.deviation:.{digits}f}"
        mean_text = f"{mean:.{digits}f}{spread}"
        if figure.verdict == "missing":
            mean_text += f" [{len(figure.by_seed)} of {len(figure.values)}]"
    printed_text = "" if figure.printed is None else f" ({figure.printed:.{digits}f})"
    return mean_text + printed_text + (" !" if figure.verdict == "outside" else "")


def caption(report: TableResult) -> list[str]:
    """Returns the lines below a table: how to read it, and its differences to the paper."""
    figures = [figure for cell in report.cells for figure in cell.figures]
    counts = sorted({len(figure.values) for figure in figures})
    seeds = f"{counts[0]} to {counts[-1]}" if len(counts) > 1 else f"{counts[0]}"
    lines = ["One seed" if counts == [1] else f"Mean ± standard deviation over {seeds} seeds"]
    lines[0] += "; in parentheses the printed figure." if report.printed else "; no figures are printed."
    if report.limits:
        limits = {f"{limit:g}" for limit in report.limits.values()}
        all_limits = ", ".join(f"{limit:g} ({name})" for name, limit in report.limits.items())
        lines.append(
            f"`!` marks a mean that is more than {limits.pop() if len(limits) == 1 else all_limits} from the"
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
    lines += [_markdown_table(*_grid(report)), "", *caption(report), *_missing_lines(report)]
    if report.gains in report.rows:  # `--only` may leave the row out
        lines += ["", f"### Gains of {markup.markdown(report.gains)}", ""]
        lines += [_markdown_table(*gains_grid(report, report.gains))]
    for ranks in report.ranks:
        lines += ["", *_rank_lines(ranks)]
    if len(report.verdicts) > MOST_SENTENCES:
        sentences = (f"- {markup.markdown(sentence)}" for sentence in sentences_of(report.verdicts))
        lines += ["", "### Verdicts", "", *sentences]
    return "\n".join(lines) + "\n"


def _markdown_table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    escaped_rows = [[markup.markdown(text) for text in row] for row in (heads, *rows)]
    return markup.markdown_table(escaped_rows[0], escaped_rows[1:])


def _missing_lines(report: TableResult) -> list[str]:
    """Returns a line for each reason for missing values, with its cells, or whole rows and columns."""
    cells_by_reason: dict[str, list[CellResult]] = {}
    for cell in report.cells:
        if any(figure.verdict == "missing" for figure in cell.figures):
            reason = one_line("; ".join(cell.reasons)) or "not run"
            reason = reason if len(reason) <= MAX_REASONS else reason[:MAX_REASONS] + "..."
            cells_by_reason.setdefault(reason, []).append(cell)
    totals = Counter(name for cell in report.cells for name in (cell.column, cell.row))
    lines = []
    for reason, cells in cells_by_reason.items():
        counts = Counter(name for cell in cells for name in (cell.column, cell.row))
        whole_names = {name for name, count in counts.items() if 1 < count == totals[name]}
        names = [next((f"all of {x}" for x in (c.column, c.row) if x in whole_names), c.id) for c in cells]
        lines.append(f"Missing in {one_line(', '.join(dict.fromkeys(names)))}: {reason}.")
    return lines


def _rank_lines(ranks: Mapping[str, Any]) -> list[str]:
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
        sentences = " ".join(ranks["sentences"])
        tables += [(sentences, table["heads"], table["rows"]) for table in ranks.get("tables", ())]
    texts = []
    for title, heads, rows in tables:
        escaped_rows = [[markup.latex(text) for text in row] for row in (heads, *rows)]
        texts.append(markup.latex_table(markup.latex(title), escaped_rows[0], escaped_rows[1:]))
    return "\n\n".join(texts) + "\n"


def gains_grid(report: TableResult, row: str) -> tuple[list[str], list[list[str]]]:
    """Returns the heads and rows of a table with the gains of one row over each other row.

    A gain is the difference of the means, in the table's unit and as a share of the other mean. Values in
    parentheses are computed from the printed figures. The last row has the deviation over all rows.
    """
    places, figures = _column_heads(report), _figures_by_place(report)
    other_rows = [name for name in report.rows if name != row]
    body = []
    for other in other_rows:
        pairs = ((figures.get((row, *place)), figures.get((other, *place))) for place in places)
        body.append(
            [f"over {other}", *("" if a is None or b is None else _gain_text(a, b) for a, b in pairs)]
        )
    columns = [[figures.get((name, *place)) for name in report.rows] for place in places]
    body.append(["deviation over the rows", *map(_spread_text, columns)])
    return ["", *places.values()], body


def _gain_text(figure: FigureResult, other: FigureResult) -> str:
    def difference(value: float | None, base: float | None) -> str:
        if value is None or base is None:
            return "-"
        share = "" if base == 0 else f", {100 * (value - base) / base:+.1f} %"
        return f"{value - base:+.{figure.digits}f}{share}"

    printed = difference(figure.printed, other.printed)
    return difference(figure.mean, other.mean) + ("" if printed == "-" else f" ({printed})")


def _spread_text(figures: Sequence[FigureResult | None]) -> str:
    known_figures = [figure for figure in figures if figure is not None]

    def deviation(values: Sequence[float | None]) -> str:
        numbers = [value for value in values if value is not None]
        if len(numbers) < max(2, len(values)):
            return "-"
        return f"{statistics.stdev(numbers):.{known_figures[0].digits}f}"

    printed = deviation([figure.printed for figure in known_figures])
    return deviation([figure.mean for figure in known_figures]) + ("" if printed == "-" else f" ({printed})")


def _figures_by_place(report: TableResult) -> dict[tuple[str, str, str], FigureResult]:
    return {(cell.row, cell.column, figure.name): figure for cell in report.cells for figure in cell.figures}


def _column_heads(report: TableResult) -> dict[tuple[str, str], str]:
    """Returns the head of each column of cells and each of its metrics, keyed by column and metric."""
    places = dict[tuple[str, str], str]()
    for column in report.columns:
        cells = [cell for cell in report.cells if cell.column == column]
        names = list(dict.fromkeys(figure.name for cell in cells for figure in cell.figures))
        places |= {(column, name): column if len(names) == 1 else f"{column} {name}" for name in names}
    return places


def _grid(report: TableResult) -> tuple[list[str], list[list[str]]]:
    """Returns the heads and the rows of a table; a column of cells is split into one column per metric."""
    places, figures = _column_heads(report), _figures_by_place(report)
    body = []
    for row in report.rows:
        row_figures = [figures.get((row, *place)) for place in places]
        body.append([row, *("" if f is None else text_of(f) for f in row_figures)])
    return ["", *places.values()], body
