"""Builds plots, and records why others were skipped."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from mlcl.report.plots.plot import Plot

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
