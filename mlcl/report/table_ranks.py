"""The tests of a table's methods over its data sets: the words, the tables, the average-rank diagram."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from mlcl.report.document import Block, Picture, Section, Table, Text, text_row
from mlcl.report.plots.plot import Plot
from mlcl.report.plots.rank_diagram import RankDiagram, rank_plot
from mlcl.report.table_plots import plot_name


def rank_sections(ranks: Sequence[Mapping[str, Any]]) -> list[Section]:
    """A section for each figure, with its diagram where it was ranked."""
    return [Section(f"{its['metric']} over data sets", _blocks(its)) for its in ranks]


def _blocks(its: Mapping[str, Any]) -> tuple[Block, ...]:
    said: tuple[Block, ...] = tuple(map(Text, its["sentences"]))
    if "test" not in its:
        return said
    tables = [Table(tuple(t["heads"]), tuple(text_row(*row) for row in t["rows"])) for t in its["tables"]]
    return (*said, Picture(_plot(its)), *tables)


def _plot(its: Mapping[str, Any]) -> Plot:
    test = its["test"]
    groups = tuple(tuple(group) for group in test["groups"])
    return rank_plot(
        plot_name("ranks", its["metric"]),
        f"{its['metric']}: average ranks over {test['n']} data sets",
        "The best is on the right. Thick bars join methods whose average ranks are less than Nemenyi's "
        "critical difference apart; its length is drawn on top.",
        RankDiagram(tuple(its["methods"]), tuple(test["ranks"]), groups, test["critical_difference"]),
    )
