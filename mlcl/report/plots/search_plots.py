"""All plots of a search."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from mlcl.report.plots.key_plots import contour_plots, importance_plot, parallel_plot
from mlcl.report.plots.plot import Plot, PlotCollection, build_plots
from mlcl.report.plots.response import gamma_plot, response_plots
from mlcl.report.plots.score_plots import history_plot, pareto_plot
from mlcl.report.plots.ternary import ternary_plot
from mlcl.report.sweep_data import SweepData


def search_plots(data: SweepData) -> PlotCollection:
    """The plots of the search."""
    builders: dict[str, Callable[[SweepData], Plot | list[Plot]]] = {
        "history": history_plot,
        "pareto": pareto_plot,
        "response": response_plots,
        "gamma": gamma_plot,
        "importance": importance_plot,
        "parallel": parallel_plot,
        "contour": contour_plots,
        "ternary": ternary_plot,
    }
    return build_plots({name: partial(make, data) for name, make in builders.items()})
