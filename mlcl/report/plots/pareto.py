"""The Pareto front of a search with several goals."""

from __future__ import annotations

import optuna
from matplotlib.axes import Axes
from optuna.visualization import matplotlib as still
from optuna.visualization import plot_pareto_front
from plotly.graph_objects import Figure as Interactive

from mlcl.report.plots import style
from mlcl.report.plots.collection import PlotSkipped
from mlcl.report.plots.optuna_plots import optuna_figure, optuna_interactive
from mlcl.report.plots.plot import Plot
from mlcl.report.plots.requirements import require_complete
from mlcl.report.plots.study import study_of
from mlcl.report.sweep_data import SweepData


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
        lambda: optuna_figure(_still, study_of(data, goals), [style.as_text(metric) for metric in goals]),
        lambda: optuna_interactive(_live, study_of(data, goals), [style.as_html(metric) for metric in goals]),
    )


def front_of(data: SweepData) -> set[int]:
    """The numbers of the complete trials on the Pareto front."""
    return {trial.number for trial in study_of(data, _goals(data)).best_trials}


def _goals(data: SweepData) -> dict[str, str]:
    return {goal.metric: goal.mode for goal in data.goals}


def _still(study: optuna.Study, names: list[str]) -> Axes:
    axes = still.plot_pareto_front(study, target_names=names)
    # Larger points, since red and blue look alike in print.
    axes.collections[-1].set(sizes=[90])
    return axes


def _live(study: optuna.Study, names: list[str]) -> Interactive:
    figure = plot_pareto_front(study, target_names=names)
    figure.data[-1].marker.update(size=12, symbol="diamond")
    return figure
