"""A plot of a report with its data, and the building of several, some of which may have nothing to show."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import pandas as pd
from matplotlib.figure import Figure
from plotly.graph_objects import Figure as Interactive


@dataclass(frozen=True)
class Plot:
    """A plot of a report.

    `name` is the stem of its files, `title` and `caption` are plain text, `table` has the data. Each call of
    `figure` draws it with matplotlib, and of `interactive` with plotly.
    """

    name: str
    title: str
    caption: str
    table: pd.DataFrame
    figure: Callable[[], Figure]
    interactive: Callable[[], Interactive]


PlotCollection = tuple[list[Plot], list[tuple[str, str]]]
"""Plots, and the (name, reason) of each that was skipped."""


class PlotSkipped(Exception):  # noqa: N818
    """A plot has nothing to show, for the reason given."""


def build_plots(builders: Mapping[str, Callable[[], Plot | list[Plot]]]) -> PlotCollection:
    """Calls the builders in their order; one that raises PlotSkipped is recorded with the reason."""
    plots: list[Plot] = []
    skipped = []
    for name, make in builders.items():
        try:
            made = make()
        except PlotSkipped as reason:
            skipped.append((name, str(reason)))
        else:
            plots += made if isinstance(made, list) else [made]
    return plots, skipped
