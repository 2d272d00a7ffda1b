"""All plots of a search."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from mlcl.report.plots.collection import PlotCollection, build_plots
from mlcl.report.plots.contours import contour_plots
from mlcl.report.plots.history import history_plot
from mlcl.report.plots.importance import importance_plot
from mlcl.report.plots.parallel import parallel_plot
from mlcl.report.plots.pareto import pareto_plot
from mlcl.report.plots.plot import Plot
from mlcl.report.plots.response import gamma_plot, tau_plots
from mlcl.report.plots.slices import slice_plot
from mlcl.report.plots.ternary import ternary_plot
from mlcl.report.sweep_data import SweepData


def search_plots(data: SweepData) -> PlotCollection:
    """The plots of the search."""
    builders: dict[str, Callable[[SweepData], Plot | list[Plot]]] = {
        "history": history_plot,
        "pareto": pareto_plot,
        "importance": importance_plot,
        "parallel": parallel_plot,
        "slice": slice_plot,
        "contour": contour_plots,
        "ternary": ternary_plot,
        "tau": tau_plots,
        "gamma": gamma_plot,
    }
    return build_plots({name: partial(make, data) for name, make in builders.items()})
