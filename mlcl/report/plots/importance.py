"""The importance of each varied key for the score of a search."""

from __future__ import annotations

import pandas as pd
from optuna.importance import get_param_importances
from optuna.visualization import matplotlib as still
from optuna.visualization import plot_param_importances

from mlcl.report.plots import style
from mlcl.report.plots.collection import PlotSkipped
from mlcl.report.plots.names import short
from mlcl.report.plots.optuna_plots import optuna_figure, optuna_interactive
from mlcl.report.plots.plot import Plot
from mlcl.report.plots.requirements import differing_keys
from mlcl.report.plots.study import quiet, study_of
from mlcl.report.sweep_data import SweepData


def importances(data: SweepData) -> dict[str, float]:
    """The share of each varied key in the variance of the score, the largest first. Raises PlotSkipped.

    Computed by PED-ANOVA, which is deterministic and takes keys that only some trials have.
    """
    if data.complete["score"].nunique() < 2:
        raise PlotSkipped("there are no two complete trials with different scores")
    differing_keys(data)
    keys = {short(key): key for key in data.varied}
    with quiet():
        shares = get_param_importances(study_of(data))
    return {keys[name]: share for name, share in shares.items()}


def importance_plot(data: SweepData) -> Plot:
    """The shares of the keys as bars. Raises PlotSkipped where they are unknown."""
    shares = importances(data)
    return Plot(
        "importance",
        "Importance of the varied keys",
        f"Shares by PED-ANOVA over {len(data.complete)} complete trials: how well a key by itself "
        "tells the better trials from the others. Few trials tell little.",
        pd.DataFrame({"key": list(shares), "share": list(shares.values())}),
        lambda: optuna_figure(still.plot_param_importances, study_of(data, text=style.as_text)),
        lambda: optuna_interactive(plot_param_importances, study_of(data, text=style.as_html)),
    )
