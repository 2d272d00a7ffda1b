"""A forest plot: the mean paired difference of each setting to a reference, with its interval."""

from __future__ import annotations

from functools import partial

import pandas as pd
from matplotlib.figure import Figure

from mlcl.report.comparison import Comparison, is_fitted
from mlcl.report.plots import style
from mlcl.report.plots.plot import Plot
from mlcl.significance.paired_tests import LEVEL

_ROW, _REST = 0.34, 1.1
"""Height of a row and of all else, in inches."""
_ROOM = 0.6
"""Room beside the trained settings, as a share of what they span."""


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
        partial(_draw, table, found.metric, _limits(found)),
    )


def _limits(found: Comparison) -> tuple[float, float]:
    """The ends of the axis: a fitted baseline far off must not squeeze what was trained."""
    trained = [row.paired for row in found.rows if not is_fitted(row.setting)]
    shown = trained or [row.paired for row in found.rows]
    ends = [0.0, *(end for its in shown for end in (its.difference, *(its.interval or ())))]
    room = _ROOM * (max(ends) - min(ends)) or 1.0
    return min(ends) - room, max(ends) + room


def _draw(table: pd.DataFrame, metric: str, limits: tuple[float, float]) -> Figure:
    with style.matplotlib_style():
        figure = Figure(figsize=(style.WIDTH, _ROW * len(table) + _REST))
        axes = figure.add_subplot()
        axes.axvline(0, color=style.MEANINGS["baseline"], linewidth=style.LINE_WIDTH)
        for place, (_, row) in enumerate(table.iterrows()):
            if not limits[0] <= row["difference"] <= limits[1]:
                left = row["difference"] < limits[0]
                text = f"\u2190 {row['difference']:+.3f}" if left else f"{row['difference']:+.3f} \u2192"
                axes.text(limits[0 if left else 1], place, text, ha="left" if left else "right", va="center")
                continue
            decided = row["verdict"] != "undecided"
            axes.plot([row["low"], row["high"]], [place, place], color="black", linewidth=style.LINE_WIDTH)
            fill = style.MEANINGS["complete"] if decided else "white"
            axes.plot(row["difference"], place, "s", color="black", markerfacecolor=fill)
        axes.set_yticks(range(len(table)), [style.as_text(f"{its}") for its in table["setting"]])
        axes.set_xlim(*limits)
        axes.set_ylim(len(table) - 0.5, -0.5)
        axes.set_xlabel(style.as_text(f"difference in {metric}"))
    return figure
