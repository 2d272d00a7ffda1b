"""Plots of a search: the score over trials, the Pareto front, and the score over one key of the job.

The score over a key has one panel for each stage, so that only trials after equally many epochs are compared.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import combinations

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from mlcl.markup import format_count
from mlcl.report.plots import style
from mlcl.report.plots.charts import (
    Axis,
    Plot,
    PlotCollection,
    PlotSkipped,
    build_plots,
    chart_plot,
    draw,
    legend,
    log_ruler,
    require_change,
    series,
)
from mlcl.report.sweep_data import SweepData
from mlcl.results.gaussian_process import Curve, fitted_curve
from mlcl.store import State
from mlcl.tracking.names import CLASSIFIER_WEIGHT

_PREFIXES = ("objective.heads.", "objective.")
MOST = 3
"""The largest number of stages before the last one, which has the final scores."""
_PANEL = 2.6
"""The height of a stage's panel in inches."""
_MARKS = {"pruned": ("o", 26), "complete": ("o", 30), "best": ("*", 190)}
"""The marker and its size for trials in each state, in the order in which they are drawn."""


def search_plots(data: SweepData) -> PlotCollection:
    """Draws all plots of a sweep's search."""
    builders: dict[str, Callable[[SweepData], Plot | list[Plot]]] = {
        "history": history_plot,
        "pareto": pareto_plots,
        "response": response_plots,
        "gamma": gamma_plot,
    }
    return build_plots({name: partial(builder, data) for name, builder in builders.items()})


def history_plot(data: SweepData) -> Plot:
    """Returns a plot of the score and the best score so far by trial. Raises PlotSkipped if none differ."""
    require_complete(data)
    trials = data.complete_trials.sort_values("number")
    require_change(trials["score"])
    best = trials["score"].cummax() if data.result.mode == "max" else trials["score"].cummin()
    trial, labels = trials["number"].astype(float), trials["setting"]
    rows = series("complete", trial, trials["score"], texts=labels), series("best", trial, best, texts=labels)
    caption = "Complete trials, and the best of them so far. Pruned trials have no final score."
    axes = Axis("trial"), Axis(data.result.score)
    return chart_plot("history", "Score by trial", caption, rows, *axes, points=("complete",))


def pareto_plots(data: SweepData) -> list[Plot]:
    """Returns a scatter plot for each pair of two or three goals. Raises PlotSkipped for other numbers."""
    if len(data.result.goals) not in (2, 3):
        raise PlotSkipped(
            "there is one goal" if len(data.result.goals) == 1 else "there are more than three goals"
        )
    require_complete(data)
    pairs = list(combinations((goal.metric for goal in data.result.goals), 2))
    names = ["pareto"] if len(pairs) == 1 else [f"pareto_{number}" for number in range(1, len(pairs) + 1)]
    return [_pareto_plot(data, name, *pair) for name, pair in zip(names, pairs, strict=True)]


def _pareto_plot(data: SweepData, name: str, x: str, y: str) -> Plot:
    front_labels = {trial.label for trial in data.result.front}
    columns = {"number": "trial", **{goal.metric: goal.metric for goal in data.result.goals}}
    table = data.complete_trials[list(columns)].rename(columns=columns)
    table["on the front"] = data.complete_trials["setting"].isin(front_labels)
    kinds = table["on the front"].map({False: "complete", True: "on the front"})
    points = table.assign(series=kinds).sort_values("series", kind="stable")
    modes = ", ".join(f"{goal.metric}: {goal.mode}" for goal in data.result.goals)
    caption = f"No other trial beats one on the front in a goal without losing in another. {modes}."
    return Plot(name, "Pareto front", caption, table, partial(draw, points, Axis(x), Axis(y), set(kinds)))


def response_plots(data: SweepData) -> list[Plot]:
    """Returns a plot of the score over each varied numeric key. Raises PlotSkipped where there is none."""
    require_complete(data)
    columns = {key: data.complete_trials[key] for key in data.varied}
    keys = [
        key
        for key, column in columns.items()
        if pd.api.types.is_numeric_dtype(column) and column.nunique() > 1
    ]
    if not keys:
        raise PlotSkipped("no number differs between complete trials")
    return [_response_plot(data, _plot_name(key), _key_axis(data, key), data.search[key]) for key in keys]


def gamma_plot(data: SweepData) -> Plot:
    """Returns a plot of the score over the heads' total weight. Raises PlotSkipped if it is constant."""
    require_complete(data)
    gamma = heads_weight(data.search)
    if gamma.nunique() < 2:
        raise PlotSkipped("the weight of all heads together is the same in all trials")
    return _response_plot(data, "gamma", Axis("weight of all heads"), gamma)


def heads_weight(frame: pd.DataFrame) -> pd.Series[float]:
    """Returns the total weight of the heads for each row of a frame of trials.

    It is 1 minus the classifier's weight, or the sum of the heads' weights if the classifier's does not vary.
    """
    if CLASSIFIER_WEIGHT in frame and frame[CLASSIFIER_WEIGHT].nunique() > 1:
        return 1 - frame[CLASSIFIER_WEIGHT].astype(float)
    return frame[[key for key in frame.columns if head_key(key, "weight")]].astype(float).sum(axis=1)


def _plot_name(key: str) -> str:
    head = head_key(key, "temperature")
    return (
        f"tau_{head}" if head else "response_" + "".join(s if s.isalnum() else "-" for s in shorten_key(key))
    )


def _key_axis(data: SweepData, key: str) -> Axis:
    head = head_key(key, "temperature")
    dimension = next(
        (p.domain.dimensions(key).get(key) for p in data.space.parameters if key in p.keys), None
    )
    label = f"temperature of {head}" if head else shorten_key(key)
    return Axis(label, log=bool(head) or (dimension is not None and dimension.log))


def _response_plot(data: SweepData, name: str, axis: Axis, x: pd.Series[float]) -> Plot:
    stages = {title: _stage_points(data, x, scores) for title, scores in score_stages(data).items()}
    require_change([score for points in stages.values() for score in points["score"]])
    caption = "Other keys differ between the trials too."
    if len(stages) > 1:
        caption += " Each panel compares trials after equally many epochs."
    table = pd.concat(points.assign(stage=title) for title, points in stages.items())
    if any(_fit_curve(points, axis) for points in stages.values()):
        caption += " Line and band: a Gaussian process and one standard deviation of its mean."
    table = table[["stage", "state", "setting", "x", "score"]].rename(columns={"x": axis.label})
    title = f"{data.result.score} by the {axis.label}"
    return Plot(name, title, caption, table, partial(_draw, stages, axis))


def _stage_points(data: SweepData, x: pd.Series[float], scores: pd.Series[float]) -> pd.DataFrame:
    """Returns a frame with a row for each trial that has a score at a stage and a value of x."""
    frame = data.search.loc[scores.index, ["number", "setting", "state"]].assign(x=x, score=scores)
    best = None if data.best is None else data.best.name  # the index: trial numbers repeat in each search
    state = frame["state"].str.lower().mask(frame.index == best, "best")
    return frame.assign(state=state).dropna(subset="x")


def _fit_curve(points: pd.DataFrame, axis: Axis) -> Curve | None:
    return fitted_curve(points["x"], points["score"], log=axis.log)


def _draw(stages: dict[str, pd.DataFrame], axis: Axis) -> Figure:
    with style.matplotlib_style():
        figure = Figure(figsize=(style.WIDTH, _PANEL * len(stages) + 0.9))
        panels = figure.subplots(len(stages), sharex=True, squeeze=False)[:, 0]
        for axes, (title, points) in zip(panels, stages.items(), strict=True):
            _draw_stage(axes, points, axis)
            axes.set_title(style.as_text(title), loc="left")
        if axis.log:
            log_ruler(panels[-1].xaxis)
        panels[-1].set_xlabel(style.as_text(axis.label))
        legend(figure, panels[0])
    return figure


def _draw_stage(axes: Axes, points: pd.DataFrame, axis: Axis) -> None:
    curve = _fit_curve(points, axis)
    if curve is not None:
        axes.plot(curve.x, curve.mean, color=style.MEANINGS["complete"], linewidth=style.LINE_WIDTH)
        low, high = curve.mean - curve.deviation, curve.mean + curve.deviation
        axes.fill_between(curve.x, low, high, color=style.MEANINGS["complete"], alpha=style.BAND, linewidth=0)
    for state, (marker, size) in _MARKS.items():
        rows, colour = points[points["state"] == state], style.MEANINGS[state]
        if len(rows):
            face, edge = "none" if state == "pruned" else colour, "black" if state == "best" else colour
            marks = axes.scatter(rows["x"], rows["score"], s=size, marker=marker, label=state, zorder=3)
            marks.set(facecolor=face, edgecolor=edge, rasterized=len(rows) > style.MOST_SHAPES)


def shorten_key(key: str) -> str:
    """Returns the key without `objective.heads.` or `objective.`, such as `section.temperature`."""
    prefix = next((prefix for prefix in _PREFIXES if key.startswith(prefix)), "")
    return key.removeprefix(prefix)


def head_key(key: str, option: str) -> str | None:
    """Returns the name of the head if `key` is this option of a head; else None."""
    prefix, suffix = _PREFIXES[0], f".{option}"
    name = key.removeprefix(prefix).removesuffix(suffix)
    return name if key == f"{prefix}{name}{suffix}" and "." not in name else None


def require_complete(data: SweepData) -> None:
    """Raises PlotSkipped where no trial is complete."""
    if data.complete_trials.empty:
        raise PlotSkipped("no trial is complete")


def score_stages(data: SweepData) -> dict[str, pd.Series[float]]:
    """Returns the scores of the trials that reached each stage, keyed by the stage's title.

    The index of the scores is that of `data.search`. The last stage has the final scores of complete trials.
    If trials were pruned, earlier stages are up to `MOST` of the validations at which trials were pruned,
    including the first and the last; their scores are of the metric that prunes.
    """
    values = pd.Series([[value for _, value in trial.intermediate] for trial in data.result.trials])
    pruned = data.search[(data.search["state"] == State.PRUNED) & data.search["score"].notna()]
    metric = data.pruning_metric.removeprefix("knn/")
    rows = [*data.complete_trials.index, *pruned.index] if len(pruned) else []
    stages: dict[str, pd.Series[float]] = {}
    for length in _spread_lengths({len(values[row]) for row in pruned.index} - {0}):
        scores = {row: values[row][length - 1] for row in rows if len(values[row]) >= length}
        epoch = length * data.job.evaluation.every
        title = f"{metric} at epoch {epoch}: {format_count(len(scores), 'trial')}"
        stages[title] = pd.Series(scores, dtype=float)
    stages[f"{data.result.score} at the end: {format_count(len(data.complete_trials), 'trial')}"] = (
        data.complete_trials["score"]
    )
    return stages


def _spread_lengths(lengths: set[int]) -> list[int]:
    """Returns at most `MOST` of the lengths, evenly spread, with the smallest and the largest; ascending."""
    ordered = sorted(lengths)
    indices = np.linspace(0, len(ordered) - 1, min(MOST, len(ordered))).round().astype(int)
    return [ordered[index] for index in indices]
