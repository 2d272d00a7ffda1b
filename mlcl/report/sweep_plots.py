"""All plots of a sweep: its search, its fresh seeds, and the embeddings of its models."""

from __future__ import annotations

import pandas as pd

from mlcl.report.embedding_plots import MOST_SETTINGS, EmbeddingPlots
from mlcl.report.plots.collection import PlotCollection
from mlcl.report.plots.learning_curves import confirmation_plots
from mlcl.report.plots.search_plots import search_plots
from mlcl.report.sweep_data import SweepData
from mlcl.tracking import State


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
    done = data.confirmation[data.confirmation["state"] == State.COMPLETE]
    settings = [str(setting) for setting in dict.fromkeys(done["setting"])]
    best = data.best
    if not settings:
        return {} if best is None else {str(best["setting"]): [str(best["run_id"])]}
    found = None if best is None else data.confirmed.get(str(best["run_id"]))
    chosen = dict.fromkeys([settings[0], *([found] if found in settings else []), *settings])
    return {str(each): _ids(done, str(each)) for each in list(chosen)[:MOST_SETTINGS]}


def _ids(runs: pd.DataFrame, setting: str) -> list[str]:
    return [str(id) for id in runs[runs["setting"] == setting]["run_id"]]
