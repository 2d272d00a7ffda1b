"""Plots of a search that Optuna draws, and the scores of its trials."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import product
from typing import Any

import optuna
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from optuna.importance import get_param_importances
from optuna.visualization.matplotlib import (
    plot_contour,
    plot_parallel_coordinate,
    plot_param_importances,
    plot_pareto_front,
)

from mlcl.report.plots import style
from mlcl.report.plots.matplotlib_backend import chart_plot
from mlcl.report.plots.plot import Axis, Chart, Plot, PlotSkipped, Series, require_change
from mlcl.report.plots.study import optuna_figure, quiet, study_of
from mlcl.report.plots.trials import differing_keys, head_key, require_complete, short
from mlcl.report.sweep_data import SweepData

_LEAST = 20
"""Fewest complete trials of importances: those of fewer change with every trial."""
_TRIALS = 4
"""Fewest complete trials of a contour: fewer span no surface."""
_CONTOURS = 4


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
    require_complete(data, _LEAST)
    shares = importances(data)
    return Plot(
        "importance",
        "Importance of the varied keys",
        f"Shares by PED-ANOVA over {len(data.complete)} complete trials: how well a key by itself "
        "tells the better trials from the others.",
        pd.DataFrame({"key": list(shares), "share": list(shares.values())}),
        lambda: optuna_figure(plot_param_importances, study_of(data, text=style.as_text)),
    )


def parallel_plot(data: SweepData) -> Plot:
    """A line for each complete trial over all varied keys. Raises PlotSkipped where they differ in none."""
    keys = differing_keys(data)
    return Plot(
        "parallel",
        "Complete trials across all varied keys",
        f"One line a trial: the darker, the better its {data.score}.",
        data.complete[["number", "score", *keys]].rename(columns={"number": "trial"}),
        partial(_draw, _draw_parallel, data, keys),
    )


def contour_plots(data: SweepData) -> list[Plot]:
    """A plot for each pair of a temperature and a weight, of many the most important. Raises PlotSkipped."""
    require_complete(data, _TRIALS)
    keys = differing_keys(data)
    temperatures, weights = (
        [key for key in keys if head_key(key, option)] for option in ("temperature", "weight")
    )
    if not temperatures or not weights:
        raise PlotSkipped("no temperature and weight differ between complete trials")
    shares = importances(data)
    pairs = sorted(
        product(temperatures, weights), key=lambda pair: -sum(shares.get(key, 0.0) for key in pair)
    )
    return [_contour(data, f"contour_{place}", *pair) for place, pair in enumerate(pairs[:_CONTOURS], 1)]


def _contour(data: SweepData, name: str, temperature: str, weight: str) -> Plot:
    return Plot(
        name,
        f"{data.score} over {short(temperature)} and {short(weight)}",
        "Between the complete trials (dots) the surface is interpolated; other keys differ between them too.",
        data.complete[["number", temperature, weight, "score"]].rename(columns={"number": "trial"}),
        partial(_draw, plot_contour, data, [temperature, weight]),
    )


def _draw(draw: Callable[..., Any], data: SweepData, keys: list[str]) -> Figure:
    """A plot of the score over these keys."""
    return optuna_figure(
        draw,
        study_of(data, text=style.as_text),
        data.mode,
        params=[style.as_text(short(key)) for key in keys],
        target_name=style.as_text(data.score),
    )


def _draw_parallel(study: optuna.Study, params: list[str], target_name: str) -> Axes:
    params = sorted(params)
    axes = plot_parallel_coordinate(study, params, target_name=target_name)
    assert isinstance(axes.figure, Figure)
    axes.figure.set_size_inches(max(style.WIDTH, 1.1 * len(params) + 2), style.HEIGHT + 0.6)
    # Optuna shortens long names.
    axes.set_xticks(range(len(params) + 1), [target_name, *params], rotation=25, ha="right")
    return axes
