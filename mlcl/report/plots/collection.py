"""Plots that are made where the data has what they show, and otherwise left out with the reason."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from mlcl.report.plots.plot import Plot

Gathered = tuple[list[Plot], list[tuple[str, str]]]
"""Plots, and (name, reason) of those left out."""


class PlotSkipped(Exception):  # noqa: N818
    """A plot has nothing to show; says why."""


def gather(makers: Mapping[str, Callable[[], Plot | list[Plot]]]) -> Gathered:
    """What the makers make, in their order; a maker that raises LeftOut gives the reason under its name."""
    plots: list[Plot] = []
    left_out = []
    for name, make in makers.items():
        try:
            made = make()
        except PlotSkipped as reason:
            left_out.append((name, str(reason)))
        else:
            plots += made if isinstance(made, list) else [made]
    return plots, left_out
