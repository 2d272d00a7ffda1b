"""The score over one key of the job: its trials and a fitted curve, stage by stage."""

from __future__ import annotations

from functools import partial

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from mlcl.report.plots import style
from mlcl.report.plots.gaussian_process import fitted_curve
from mlcl.report.plots.matplotlib_backend import legend, log_ruler
from mlcl.report.plots.plot import Axis, Plot, PlotSkipped, require_change
from mlcl.report.plots.trials import best_number, head_key, require_complete, score_stages, short
from mlcl.report.sweep_data import SweepData
from mlcl.tracking.names import CLASSIFIER_WEIGHT

_PANEL = 2.6
"""Height of a stage's panel in inches."""
_MARKS = {"pruned": ("o", 26), "complete": ("o", 30), "best": ("*", 190)}
"""Marker and size of the trials in each state, in the order of drawing."""


def response_plots(data: SweepData) -> list[Plot]:
    """A plot for each number that varies between complete trials. Raises PlotSkipped for none."""
    require_complete(data)
    complete = data.complete
    keys = [
        key
        for key in data.varied
        if pd.api.types.is_numeric_dtype(complete[key]) and complete[key].nunique() > 1
    ]
    if not keys:
        raise PlotSkipped("no number differs between complete trials")
    return [_plot(data, _name(key), _axis(data, key), data.search[key]) for key in keys]


def gamma_plot(data: SweepData) -> Plot:
    """The score over the weight of all heads. Raises PlotSkipped where it does not vary."""
    require_complete(data)
    gamma = heads_weight(data.search)
    if gamma.nunique() < 2:
        raise PlotSkipped("the weight of all heads together is the same in all trials")
    return _plot(data, "gamma", Axis("weight of all heads"), gamma)


def heads_weight(frame: pd.DataFrame) -> pd.Series[float]:
    """1 minus the classifier's weight; where that is fixed, the sum of the heads' weights."""
    if CLASSIFIER_WEIGHT in frame and frame[CLASSIFIER_WEIGHT].nunique() > 1:
        return 1 - frame[CLASSIFIER_WEIGHT].astype(float)
    return frame[[key for key in frame.columns if head_key(key, "weight")]].astype(float).sum(axis=1)


def _name(key: str) -> str:
    head = head_key(key, "temperature")
    return f"tau_{head}" if head else "response_" + "".join(s if s.isalnum() else "-" for s in short(key))


def _axis(data: SweepData, key: str) -> Axis:
    head = head_key(key, "temperature")
    drawn = next((p.domain.dimensions(key).get(key) for p in data.space.parameters if key in p.keys), None)
    label = f"temperature of {head}" if head else short(key)
    return Axis(label, log=bool(head) or (drawn is not None and drawn.log))


def _plot(data: SweepData, name: str, axis: Axis, x: pd.Series[float]) -> Plot:
    stages = {title: _points(data, x, scores) for title, scores in score_stages(data).items()}
    require_change([score for points in stages.values() for score in points["score"]])
    caption = "Other keys differ between the trials too."
    if len(stages) > 1:
        caption += " Each panel compares trials after equally many epochs."
    curve = " Line and band: a Gaussian process and one standard deviation of its mean."
    table = pd.concat(points.assign(stage=title) for title, points in stages.items())
    return Plot(
        name,
        f"{data.score} by the {axis.label}",
        caption + (curve if any(_curve(points, axis) for points in stages.values()) else ""),
        table[["stage", "state", "setting", "x", "score"]].rename(columns={"x": axis.label}),
        partial(_draw, stages, axis),
    )


def _points(data: SweepData, x: pd.Series[float], scores: pd.Series[float]) -> pd.DataFrame:
    """A row for each trial with a score at a stage."""
    frame = data.search.loc[scores.index, ["number", "setting", "state"]].assign(x=x, score=scores)
    state = frame["state"].str.lower().mask(frame["number"] == best_number(data), "best")
    return frame.assign(state=state).dropna(subset="x")


def _curve(points: pd.DataFrame, axis: Axis) -> object:
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
    curve = fitted_curve(points["x"], points["score"], log=axis.log)
    if curve is not None:
        axes.plot(curve.x, curve.mean, color=style.MEANINGS["complete"], linewidth=style.LINE_WIDTH)
        low, high = curve.mean - curve.deviation, curve.mean + curve.deviation
        axes.fill_between(curve.x, low, high, color=style.MEANINGS["complete"], alpha=style.BAND, linewidth=0)
    for state, (marker, size) in _MARKS.items():
        its = points[points["state"] == state]
        if len(its):
            axes.scatter(
                its["x"],
                its["score"],
                s=size,
                marker=marker,
                facecolor="none" if state == "pruned" else style.MEANINGS[state],
                edgecolor="black" if state == "best" else style.MEANINGS[state],
                label=state,
                zorder=3,
            )
