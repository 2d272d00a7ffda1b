"""All plots of a sweep: its search, its fresh seeds, and the embeddings of its models."""

from __future__ import annotations

from mlcl.report.embedding_plots import MOST_SETTINGS, EmbeddingPlots
from mlcl.report.plots.learning_curves import confirmation_plots
from mlcl.report.plots.plot import PlotCollection
from mlcl.report.plots.search_plots import search_plots
from mlcl.report.sweep_data import SweepData


def sweep_plots(data: SweepData, draw_embeddings: EmbeddingPlots) -> PlotCollection:
    """The plots, those of the search first."""
    collection = (search_plots(data), confirmation_plots(data), draw_embeddings(chosen_runs(data)))
    return [plot for plots, _ in collection for plot in plots], [
        each for _, left in collection for each in left
    ]


def chosen_runs(data: SweepData) -> dict[str, list[str]]:
    """The ids of complete runs by setting: the first confirmed setting, the best found one, then others.

    Where nothing was confirmed, the best search trial.
    """
    runs, best = data.complete_runs, data.best
    found = "" if best is None else data.confirmed.get(str(best["run_id"]), "")
    chosen = dict.fromkeys([*list(runs)[:1], *([found] if found in runs else []), *runs])
    return {setting: runs[setting] for setting in list(chosen)[:MOST_SETTINGS]}
