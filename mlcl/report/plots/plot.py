"""A plot of a report with its data, and the building of several, some of which may have nothing to show."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

import pandas as pd
from matplotlib.figure import Figure


@dataclass(frozen=True)
class Plot:
    """A plot of a report.

    `name` is the stem of its files, `title` and `caption` are plain text, `table` has the data. Each call of
    `figure` draws it.
    """

    name: str
    title: str
    caption: str
    table: pd.DataFrame
    figure: Callable[[], Figure]


PlotCollection = tuple[list[Plot], list[tuple[str, str]]]
"""Plots, and the (name, reason) of each that was skipped."""


class PlotSkipped(Exception):  # noqa: N818
    """A plot has nothing to show, for the reason given."""


def require_change(values: Iterable[float]) -> None:
    """Raises PlotSkipped where all values are the same: a picture of a constant tells nothing."""
    if len(set(values)) < 2:
        raise PlotSkipped("its values are all the same")


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
