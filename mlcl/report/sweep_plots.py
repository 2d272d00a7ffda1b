"""All plots of a sweep."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from mlcl.report.embedding_plots import MOST_SETTINGS, EmbeddingPlots
from mlcl.report.plots.charts import Plot, PlotCollection, build_plots
from mlcl.report.plots.learning_curves import confirmation_plots
from mlcl.report.plots.search_plots import gamma_plot, history_plot, pareto_plots, response_plots
from mlcl.report.sweep_data import SweepData


def search_plots(data: SweepData) -> PlotCollection:
    """The plots of the search."""
    builders: dict[str, Callable[[SweepData], Plot | list[Plot]]] = {
        "history": history_plot,
        "pareto": pareto_plots,
        "response": response_plots,
        "gamma": gamma_plot,
    }
    return build_plots({name: partial(make, data) for name, make in builders.items()})


def sweep_plots(data: SweepData, draw_embeddings: EmbeddingPlots, setting: str | None) -> PlotCollection:
    """The plots, those of the search first; `setting` is the one to use."""
    chosen = chosen_runs(data, setting)
    collection = (search_plots(data), confirmation_plots(data), draw_embeddings(chosen))
    return [plot for plots, _ in collection for plot in plots], [
        each for _, left in collection for each in left
    ]


def chosen_runs(data: SweepData, setting: str | None) -> dict[str, list[str]]:
    """The ids of complete runs by setting: the one to use, the first confirmed setting, then others.

    Where nothing was confirmed, the best search trial.
    """
    runs = data.complete_runs
    names = dict.fromkeys([*([setting] if setting in runs else []), *runs])
    return {name: runs[name] for name in list(names)[:MOST_SETTINGS]}
