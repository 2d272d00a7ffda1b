"""A forest plot: the mean paired difference of each setting to a reference, with its interval."""

from __future__ import annotations

from functools import partial

import pandas as pd
from matplotlib.figure import Figure

from mlcl.report.comparison import Comparison
from mlcl.report.plots import style
from mlcl.report.plots.plot import Plot
from mlcl.significance.paired_tests import LEVEL

_ROW, _REST = 0.34, 1.1
"""Height of a row and of all else, in inches."""


def forest_plot(found: Comparison) -> Plot:
    """The plot of a comparison. Its table has a row for each setting: difference, low, high, verdict."""
    rows = [
        (row.setting.label, row.paired.difference, *(row.paired.interval or (None, None)), row.verdict)
        for row in found.rows
    ]
    table = pd.DataFrame(rows, columns=["setting", "difference", "low", "high", "verdict"])
    better = {"max": "Right of the line is better.", "min": "Left of the line is better.", None: ""}
    caption = f"Mean difference over the seeds that both have, with its {LEVEL:.0%} interval."
    return Plot(
        "differences",
        f"{found.metric}: difference to {found.reference.label}",
        f"{caption} {better[found.mode]}".rstrip(),
        table,
        partial(_draw, table, found.metric),
    )


def _draw(table: pd.DataFrame, metric: str) -> Figure:
    with style.matplotlib_style():
        figure = Figure(figsize=(style.WIDTH, _ROW * len(table) + _REST))
        axes = figure.add_subplot()
        axes.axvline(0, color=style.MEANINGS["baseline"], linewidth=style.LINE_WIDTH)
        for place, (_, row) in enumerate(table.iterrows()):
            decided = row["verdict"] != "undecided"
            axes.plot([row["low"], row["high"]], [place, place], color="black", linewidth=style.LINE_WIDTH)
            fill = style.MEANINGS["complete"] if decided else "white"
            axes.plot(row["difference"], place, "s", color="black", markerfacecolor=fill)
        axes.set_yticks(range(len(table)), [style.as_text(f"{its}") for its in table["setting"]])
        axes.set_ylim(len(table) - 0.5, -0.5)
        axes.set_xlabel(style.as_text(f"difference in {metric}"))
    return figure
