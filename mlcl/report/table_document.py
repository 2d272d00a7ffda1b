"""Builds the report of a table: matrices, ranks, verdicts, searches, every cell and every seed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pandas as pd

from mlcl.report.document import (
    Block,
    Code,
    Details,
    Document,
    Picture,
    ReportCell,
    ReportSection,
    ReportTable,
    data_sections,
    number_cell,
    plot_blocks,
    provenance_table,
    text_row,
    value_text,
)
from mlcl.report.plots.charts import Plot, PlotCollection
from mlcl.report.plots.comparison_plots import RankDiagram, rank_plot
from mlcl.report.table_plots import cell_plots, plot_name
from mlcl.results.cell_result import CellResult, FigureResult, SearchResult
from mlcl.results.sweep_arms import ArmResult
from mlcl.results.table_result import TableResult
from mlcl.results.table_verdicts import sentences_of
from mlcl.significance.roles import Role
from mlcl.significance.verdict import Verdict

RANK = "average rank"
ABOUT = (
    "Scores are on validation: of the median and the best complete trial, which have one seed, and the mean "
    "of the pick over fresh seeds; of several searches the means. Kept is the share of the best trial's lead "
    "over the median one that is left on fresh seeds; below 0 the best was no better than the median."
)
VERDICTS = (
    "Cells that saw the same rows are compared with the control, or else with the best baseline or the first "
    "cell. Values are those of the metric, positive differences are better; levels are corrected for the "
    "cells of a metric with the same rows. Seeds and rows are shares of the variance."
)
VERDICT_HEADS = (
    "cells", "metric", "of", "against", "difference", "interval", "level", "seeds", "rows", "verdict",
)  # fmt: skip
HEADS = ("cell", "score", "trials", "median trial", "best trial", "fresh seeds", "kept", "found")


def table_document(table: TableResult, collection: PlotCollection, store: str) -> Document:
    """Returns the report of a table with these plots; `store` is the printed URI of the tracking store."""
    plots, missing = collection
    conclusions = table.conclusions
    paragraphs = (*conclusions, table.about or table.title)
    matrices = [block for name in table.figure_names for block in matrix_blocks(table, name)]
    provenance = provenance_table(table.provenance, table.run_id or "", store)
    sections = [
        ReportSection("Result", (*paragraphs, *matrices)),
        *(
            ReportSection(f"{ranking['metric']} over data sets", _rank_blocks(ranking))
            for ranking in table.ranks
        ),
        ReportSection("Verdicts", verdict_blocks(table.verdicts)),
        *search_sections(table),
        ReportSection("Every cell", (_results_table(table), *map(Picture, cell_plots(table)))),
        ReportSection("Every seed", (_seeds_table(table),)),
        ReportSection("Plots", plot_blocks(plots, missing)),
        *data_sections(table.notes),
        ReportSection("Where it comes from", (provenance, Details("The command", (Code(table.command),)))),
    ]
    source = f"{table.source}. Table {table.id} ({table.name}), {table.state}"
    return Document(table.title, source, tuple(sections), tuple(missing), tuple(conclusions))


def matrix_blocks(table: TableResult, name: str) -> tuple[Block, ...]:
    """Returns the matrix of the figure `name`: means over seeds ± sample standard deviation.

    Among cells with the same data the best one is bold, and the others are shaded the darker, the closer they
    are to it. If the rows or the columns are data sets and no cell is missing, the other side, which has the
    methods, gets average ranks (1 is the best).
    """
    figures = {
        (cell.row, cell.column): (cell, figure) for cell, figure in table.figures if figure.name == name
    }
    frame = pd.DataFrame(
        [(*key, cell.data, figure.mean) for key, (cell, figure) in figures.items()],
        columns=["row", "column", "data", "mean"],
    ).astype({"mean": float})
    sign = 1.0 if table.higher[name] else -1.0
    scores = (sign * frame["mean"]).groupby(frame["data"])
    low, high = scores.transform("min"), scores.transform("max")
    spread = high - low
    frame["best"] = (sign * frame["mean"] == high) & (spread > 0)
    frame["shade"] = ((sign * frame["mean"] - low) / spread.where(spread > 0)).fillna(0.0)
    frame["rank"] = scores.rank(ascending=False)
    highlights = zip(frame["best"].tolist(), frame["shade"].tolist(), strict=True)
    grid = {key: _matrix_cell(*figures[key], *marks) for key, marks in zip(figures, highlights, strict=True)}
    rows, columns = (list(dict.fromkeys(frame[side])) for side in ("row", "column"))
    row_ranks, column_ranks = _average_ranks(frame, "row", "column"), _average_ranks(frame, "column", "row")
    body = []
    for row in rows:
        cells = (grid.get((row, column), ReportCell("")) for column in columns)
        body.append([ReportCell(row), *cells, *_rank_cells(row_ranks, [row])])
    if len(column_ranks):
        body.append([ReportCell(RANK), *_rank_cells(column_ranks, columns)])
    heads = (name, *columns, *([RANK] if len(row_ranks) else []))
    better = "higher" if table.higher[name] else "lower"
    about = f"{name} in {table.unit}, mean ± sd over seeds; {better} is better."
    return (about, ReportTable(heads, tuple(map(tuple, body))))


def _average_ranks(frame: pd.DataFrame, methods: str, sets: str) -> pd.Series[float]:
    """Returns the average ranks of `methods` (`row` or `column`) over `sets`, the other side.

    Empty if a set has cells with different data or the data of another set, a cell has no mean, or a side has
    only one name.
    """
    counts = frame[methods].nunique(), frame[sets].nunique()
    complete = len(frame) == counts[0] * counts[1] and frame["mean"].notna().all()
    same_data = (frame.groupby(sets)["data"].nunique() == 1).all() and frame["data"].nunique() == counts[1]
    if not (min(counts) > 1 and complete and same_data):
        return pd.Series(dtype=float)
    return frame.groupby(methods)["rank"].mean()


def _rank_cells(ranks: pd.Series[float], names: list[str]) -> list[ReportCell]:
    return [
        ReportCell(f"{ranks[name]:.2f}", best=bool(ranks[name] == ranks.min()))
        for name in names
        if name in ranks
    ]


def _matrix_cell(cell: CellResult, figure: FigureResult, best: bool, shade: float) -> ReportCell:
    if figure.mean is None:
        return ReportCell("")
    mean_cell = number_cell(
        figure.mean, figure.metric, cell.run_ids(figure), "mean", form=f".{figure.digits}f"
    )
    spread = "" if figure.deviation is None else f" ± {figure.deviation:.{figure.digits}f}"
    return replace(mean_cell, text=mean_cell.text + spread, best=best, shade=shade)


def search_sections(table: TableResult) -> list[ReportSection]:
    """Returns a section with the searches of tuned cells; no section where there are none."""
    rows = tuple(_search_row(cell, cell.search) for cell in table.cells if cell.search is not None)
    if not rows:
        return []
    blocks: tuple[Block, ...] = (ABOUT, ReportTable(HEADS, rows, left=(0, 1, 2, 7)))
    arms = [ArmResult(cell.label, Role.MODEL, cell.search.searches) for cell in table.cells if cell.search]
    races = tuple(sentence for arm in arms for sentence in arm.sentences)
    return [ReportSection("Searches", (*blocks, *([Details("Races", races)] if races else [])))]


def _search_row(cell: CellResult, search: SearchResult) -> tuple[ReportCell, ...]:
    scores = ("" if score is None else f"{score:.4f}" for score in (search.median, search.best, search.fresh))
    return text_row(
        cell.label,
        f"{search.metric} ({search.mode})",
        ", ".join(f"{count} {state}" for state, count in search.trials.items()),
        *scores,
        "" if search.kept is None else f"{search.kept:.0%}",
        ", ".join(f"{key}={value_text(value)}" for key, value in (cell.settings or {}).items()),
    )


def verdict_blocks(verdicts: Sequence[tuple[str, Verdict]]) -> tuple[Block, ...]:
    """Returns a table with one row for each verdict, and a hidden block with their sentences."""
    if not verdicts:
        return ("No two cells that saw the same rows have values: there is nothing to compare.",)
    rows = tuple(_verdict_row(shared, verdict) for shared, verdict in verdicts)
    words = Details("In words", tuple(sentences_of(verdicts)))
    return (VERDICTS, ReportTable(VERDICT_HEADS, rows, left=(0, 1, 2, 3, 9)), words)


def _verdict_row(shared: str, verdict: Verdict) -> tuple[ReportCell, ...]:
    interval = "" if verdict.interval is None else " to ".join(f"{end:+.4f}" for end in verdict.interval)
    shares = ("" if verdict.interval is None else f"{verdict.shares[part]:.0%}" for part in ("seeds", "rows"))
    names = (shared, verdict.metric, verdict.treated.label, verdict.reference.label)
    level = f"{verdict.level * 100:.3g} %"
    return text_row(*names, f"{verdict.difference:+.4f}", interval, level, *shares, verdict.answer.value)


def _rank_blocks(ranking: Mapping[str, Any]) -> tuple[Block, ...]:
    sentences: tuple[Block, ...] = tuple(ranking["sentences"])
    if "test" not in ranking:
        return sentences
    tables = [
        ReportTable(tuple(t["heads"]), tuple(text_row(*row) for row in t["rows"])) for t in ranking["tables"]
    ]
    return (*sentences, Picture(_rank_diagram(ranking)), *tables)


def _rank_diagram(ranking: Mapping[str, Any]) -> Plot:
    test = ranking["test"]
    groups = tuple(tuple(group) for group in test["groups"])
    return rank_plot(
        plot_name("ranks", ranking["metric"]),
        f"{ranking['metric']}: average ranks over {test['n']} data sets",
        "The best is on the right. Thick bars join methods whose average ranks are less than Nemenyi's "
        "critical difference apart; its length is drawn on top.",
        RankDiagram(tuple(ranking["methods"]), tuple(test["ranks"]), groups, test["critical_difference"]),
    )


def _figure_label(table: TableResult, cell: CellResult, figure: FigureResult) -> str:
    return cell.label + (f", {figure.name}" if len(table.figure_names) > 1 else "")


def _results_table(table: TableResult) -> ReportTable:
    heads = ("cell", "seeds", f"mean ({table.unit})", "± sd", "printed", "difference", "verdict")
    return ReportTable(heads, tuple(_result_row(table, *pair) for pair in table.figures), left=(0, 6))


def _result_row(table: TableResult, cell: CellResult, figure: FigureResult) -> tuple[ReportCell, ...]:
    form, runs = f".{figure.digits}f", cell.run_ids(figure)
    return (
        ReportCell(_figure_label(table, cell, figure)),
        ReportCell(f"{len(figure.by_seed)} of {len(figure.values)}"),
        number_cell(figure.mean, figure.metric, runs, "mean", form=form),
        number_cell(figure.deviation, figure.metric, runs, "sd", form=form),
        ReportCell("" if figure.printed is None else f"{figure.printed:{form}}"),
        ReportCell("" if figure.difference is None else f"{figure.difference:+{form}}"),
        ReportCell(figure.verdict),
    )


def _seeds_table(table: TableResult) -> ReportTable:
    n_seeds = max(len(figure.values) for _, figure in table.figures)
    rows = []
    for cell, figure in table.figures:
        cells = [ReportCell(_figure_label(table, cell, figure))]
        for seed, value in enumerate(figure.values):
            runs = [run_id] if (run_id := cell.run_id(seed)) else []
            cells.append(number_cell(value, figure.metric, runs, form=f".{figure.digits}f"))
        rows.append((*cells, *[ReportCell("")] * (n_seeds - len(figure.values))))
    return ReportTable(("cell", *(f"no. {number}" for number in range(1, n_seeds + 1))), tuple(rows))
