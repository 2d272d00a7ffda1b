"""Plots of the scores of a search's trials, drawn by Optuna: by trial, and the Pareto front."""

from __future__ import annotations

import optuna
import pandas as pd
from matplotlib.axes import Axes
from optuna.visualization import matplotlib as still
from optuna.visualization import plot_optimization_history, plot_pareto_front
from plotly.graph_objects import Figure as Interactive
from plotly.graph_objects import Scatter

from mlcl.report.plots.optuna_drawing import optuna_drawings
from mlcl.report.plots.plot import Plot, PlotSkipped
from mlcl.report.plots.study import study_of
from mlcl.report.plots.trials import pruned_note, pruned_trials, require_complete
from mlcl.report.sweep_data import SweepData
from mlcl.tracking import State

_LABEL, _COLOUR = "stopped early", "#666666"


def history_plot(data: SweepData) -> Plot:
    """The score by trial. Raises PlotSkipped where no trial is complete."""
    require_complete(data)
    early = pruned_trials(data)
    final = data.search["score"].where(data.search["state"] == State.COMPLETE)
    best = final.cummax() if data.mode == "max" else final.cummin()
    table = data.search[["number", "state", "score"]].rename(columns={"number": "trial"})
    return Plot(
        "history",
        "Score by trial",
        f"Complete trials, and the best of them so far.{pruned_note(data)}",
        table.assign(**{"best so far": best.ffill()}),
        *optuna_drawings(
            _still_history,
            _live_history,
            lambda text: {"study": study_of(data), "early": early, "score": text(data.score)},
        ),
    )


def pareto_plot(data: SweepData) -> Plot:
    """The trials by two or three goals. Raises PlotSkipped for fewer or more goals."""
    if len(data.goals) not in (2, 3):
        raise PlotSkipped("there is one goal" if len(data.goals) == 1 else "there are more than three goals")
    require_complete(data)
    goals, front = _goals(data), front_of(data)
    table = data.complete[["number", *goals]].rename(columns={"number": "trial"})
    table["on the front"] = [int(number) in front for number in table["trial"]]
    return Plot(
        "pareto",
        "Pareto front",
        "No other trial beats one on the front in a goal without losing in another. "
        + ", ".join(f"{metric}: {mode}" for metric, mode in goals.items())
        + ".",
        table,
        *optuna_drawings(
            _still_pareto,
            _live_pareto,
            lambda text: {"study": study_of(data, goals), "names": [text(metric) for metric in goals]},
        ),
    )


def front_of(data: SweepData) -> set[int]:
    """The numbers of the complete trials on the Pareto front."""
    return {trial.number for trial in study_of(data, _goals(data)).best_trials}


def _goals(data: SweepData) -> dict[str, str]:
    return {goal.metric: goal.mode for goal in data.goals}


def _still_history(study: optuna.Study, early: pd.DataFrame, score: str) -> Axes:
    axes = still.plot_optimization_history(study, target_name=score)
    if len(early):
        axes.scatter(early["number"], early["score"], facecolors="none", edgecolors=_COLOUR, label=_LABEL)
        axes.legend()
    return axes


def _live_history(study: optuna.Study, early: pd.DataFrame, score: str) -> Interactive:
    figure = plot_optimization_history(study, target_name=score)
    if len(early):
        marks = {"color": _COLOUR, "symbol": "circle-open"}
        x, y = early["number"].tolist(), early["score"].tolist()
        figure.add_trace(Scatter(x=x, y=y, mode="markers", marker=marks, name=_LABEL))
    return figure


def _still_pareto(study: optuna.Study, names: list[str]) -> Axes:
    axes = still.plot_pareto_front(study, target_names=names)
    # Larger points, since red and blue look alike in print.
    axes.collections[-1].set(sizes=[90])
    return axes


def _live_pareto(study: optuna.Study, names: list[str]) -> Interactive:
    figure = plot_pareto_front(study, target_names=names)
    figure.data[-1].marker.update(size=12, symbol="diamond")
    return figure
