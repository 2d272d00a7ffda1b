"""How much of a search's success each varied key decides."""

from __future__ import annotations

import pandas as pd
from optuna.importance import get_param_importances
from optuna.visualization import matplotlib as still
from optuna.visualization import plot_param_importances

from mlcl.report.plots import style
from mlcl.report.plots.collection import PlotSkipped
from mlcl.report.plots.names import short
from mlcl.report.plots.optuna_plots import drawn, explored
from mlcl.report.plots.plot import Plot
from mlcl.report.plots.requirements import differing
from mlcl.report.plots.study import quiet, study_of
from mlcl.report.sweep_data import SweepData


def importances(data: SweepData) -> dict[str, float]:
    """The share of each varied key in how the score varies, the largest first. Raises LeftOut.

    PED-ANOVA: deterministic, and a key that is in some trials alone counts too.
    """
    if data.complete["score"].nunique() < 2:
        raise PlotSkipped("there are no two complete trials with different scores")
    differing(data)
    keys = {short(key): key for key in data.varied}
    with quiet():
        shares = get_param_importances(study_of(data))
    return {keys[name]: share for name, share in shares.items()}


def importance_plot(data: SweepData) -> Plot:
    """Which keys the score depends on. Raises LeftOut where that cannot be told."""
    shares = importances(data)
    return Plot(
        "importance",
        "Importance of the varied keys",
        f"Shares by PED-ANOVA over {len(data.complete)} complete trials: how well a key by itself "
        "tells the better trials from the others. Few trials tell little.",
        pd.DataFrame({"key": list(shares), "share": list(shares.values())}),
        lambda: drawn(still.plot_param_importances, study_of(data, text=style.as_text)),
        lambda: explored(plot_param_importances, study_of(data, text=style.as_html)),
    )
