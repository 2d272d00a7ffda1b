"""Plots of the scores of a search's trials: by trial, and the Pareto front."""

from __future__ import annotations

import optuna
from matplotlib.axes import Axes
from optuna.visualization.matplotlib import plot_pareto_front

from mlcl.report.plots import style
from mlcl.report.plots.chart import Axis, Chart, Series
from mlcl.report.plots.chart_plot import chart_plot
from mlcl.report.plots.optuna_drawing import optuna_figure
from mlcl.report.plots.plot import Plot, PlotSkipped, require_change
from mlcl.report.plots.study import study_of
from mlcl.report.plots.trials import require_complete
from mlcl.report.sweep_data import SweepData


def history_plot(data: SweepData) -> Plot:
    """The final scores by trial. Raises PlotSkipped where no two complete trials differ."""
    require_complete(data)
    done = data.complete.sort_values("number")
    require_change(done["score"])
    best = done["score"].cummax() if data.mode == "max" else done["score"].cummin()
    trial = [float(number) for number in done["number"]]
    series = (
        Series("complete", "points", trial, done["score"].tolist(), texts=done["setting"].tolist()),
        Series("best", "line", trial, best.tolist(), texts=done["setting"].tolist()),
    )
    caption = "Complete trials, and the best of them so far. Pruned trials have no final score."
    return chart_plot("history", "Score by trial", caption, Chart(Axis("trial"), Axis(data.score), series))


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
        lambda: optuna_figure(
            _draw_pareto, study_of(data, goals), names=[style.as_text(metric) for metric in goals]
        ),
    )


def front_of(data: SweepData) -> set[int]:
    """The numbers of the complete trials on the Pareto front."""
    return {trial.number for trial in study_of(data, _goals(data)).best_trials}


def _goals(data: SweepData) -> dict[str, str]:
    return {goal.metric: goal.mode for goal in data.goals}


def _draw_pareto(study: optuna.Study, names: list[str]) -> Axes:
    axes = plot_pareto_front(study, target_names=names)
    # Larger points, since red and blue look alike in print.
    axes.collections[-1].set(sizes=[90])
    return axes
