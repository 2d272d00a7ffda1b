"""The score of a search by trial."""

from __future__ import annotations

import optuna
import pandas as pd
from matplotlib.axes import Axes
from optuna.visualization import matplotlib as still
from optuna.visualization import plot_optimization_history
from plotly.graph_objects import Figure as Interactive
from plotly.graph_objects import Scatter

from mlcl.report.plots import style
from mlcl.report.plots.optuna_plots import optuna_figure, optuna_interactive
from mlcl.report.plots.plot import Plot
from mlcl.report.plots.requirements import pruned_note, pruned_trials, require_complete
from mlcl.report.plots.study import study_of
from mlcl.report.sweep_data import SweepData
from mlcl.tracking import State

_LABEL, _COLOUR = "stopped early", "#666666"


def history_plot(data: SweepData) -> Plot:
    """The score by trial. Raises PlotSkipped where no trial is complete."""
    require_complete(data)
    early = pruned_trials(data)
    return Plot(
        "history",
        "Score by trial",
        f"Complete trials, and the best of them so far.{pruned_note(data)}",
        _table(data),
        lambda: optuna_figure(_still, study_of(data), early, style.as_text(data.score)),
        lambda: optuna_interactive(_live, study_of(data), early, style.as_html(data.score)),
    )


def _still(study: optuna.Study, early: pd.DataFrame, score: str) -> Axes:
    axes = still.plot_optimization_history(study, target_name=score)
    if len(early):
        axes.scatter(early["number"], early["score"], facecolors="none", edgecolors=_COLOUR, label=_LABEL)
        axes.legend()
    return axes


def _live(study: optuna.Study, early: pd.DataFrame, score: str) -> Interactive:
    figure = plot_optimization_history(study, target_name=score)
    if len(early):
        marks = {"color": _COLOUR, "symbol": "circle-open"}
        x, y = early["number"].tolist(), early["score"].tolist()
        figure.add_trace(Scatter(x=x, y=y, mode="markers", marker=marks, name=_LABEL))
    return figure


def _table(data: SweepData) -> pd.DataFrame:
    final = data.search["score"].where(data.search["state"] == State.COMPLETE)
    best = final.cummax() if data.mode == "max" else final.cummin()
    return pd.DataFrame(
        {
            "trial": data.search["number"],
            "state": data.search["state"],
            "score": data.search["score"],
            "best so far": best.ffill(),
        }
    )
