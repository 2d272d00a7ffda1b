"""Plots of metrics over training steps: the mean over the seeds of each setting, with a band."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

import numpy as np
import pandas as pd

from mlcl.report.plots.charts import (
    Axis,
    Plot,
    PlotCollection,
    PlotSkipped,
    build_plots,
    chart_plot,
    require_change,
    series,
)
from mlcl.report.sweep_data import Histories, SweepData

_BAND = (
    "Mean over the seeds of each setting, as far as all of them came; the band is their standard deviation."
)


def confirmation_plots(data: SweepData) -> PlotCollection:
    """Draws the training curves of the confirmed settings, or of the best trial if there are none."""
    return build_plots(
        {
            "learning": lambda: learning_plot(data.pruning_metric, curve_runs(data), data.history),
            "temperatures": partial(temperature_plot, data),
            "positives": partial(positives_plot, data),
        }
    )


def learning_plot(metric: str, settings: Mapping[str, Sequence[str]], history: Histories) -> Plot:
    """Returns a plot of the metric at each validation; `settings` has the run ids of each setting.

    Raises PlotSkipped where there are fewer than two validations or the metric is constant.
    """
    # A metric with kNN is known only at the end; the same metric of the model is drawn instead.
    metric = metric.removeprefix("knn/")
    curves = [mean_curve(name, [history(run_id, metric) for run_id in ids]) for name, ids in settings.items()]
    return _make_plot("learning", f"{metric} during training", Axis(metric), curves)


def temperature_plot(data: SweepData) -> Plot:
    """Returns a plot of each head's temperature over steps. Raises PlotSkipped where all are constant."""
    curves = _curves_by_head(data, curve_runs(data), "temperature")
    if all(curve["y"].nunique() == 1 for curve in curves):
        raise PlotSkipped("every temperature is constant during training")
    return _make_plot("temperatures", "Temperatures during training", Axis("temperature", log=True), curves)


def positives_plot(data: SweepData) -> Plot:
    """Returns a plot of each head's positives per anchor over steps, for one setting.

    Raises PlotSkipped where the positives were not logged or are constant.
    """
    # One setting is enough: the number depends on the batches, hardly on the settings.
    *_, (setting, run_ids) = curve_runs(data).items()
    curves = _curves_by_head(data, {setting: run_ids}, "positives_per_anchor")
    title = f"Positives per anchor during training: {setting}"
    return _make_plot("positives", title, Axis("positives per anchor"), curves)


def curve_runs(data: SweepData) -> dict[str, list[str]]:
    """Returns the run ids of each setting to draw. Raises PlotSkipped where there is none."""
    if not data.complete_runs:
        raise PlotSkipped("no training is complete and in MLflow")
    return data.complete_runs


def mean_curve(name: str, histories: Sequence[Sequence[tuple[int, float]]]) -> pd.DataFrame:
    """Returns a series with mean and standard deviation over runs, at the steps that all runs have."""
    runs = [dict(history) for history in histories]
    steps = sorted(set.intersection(*map(set, runs))) if runs else []
    values = np.array([[run[step] for step in steps] for run in runs], float).reshape(len(runs), len(steps))
    mean = values.mean(axis=0) if runs else []
    return series(name, steps, mean, values.std(axis=0, ddof=1) if len(runs) > 1 else None)


def _curves_by_head(data: SweepData, settings: Mapping[str, list[str]], figure: str) -> list[pd.DataFrame]:
    curves = []
    for head in data.job.objective.heads:
        for setting, ids in settings.items():
            histories = [data.history(run_id, f"train/heads/{head}/{figure}") for run_id in ids]
            curves.append(mean_curve(head if len(settings) == 1 else f"{head}, {setting}", histories))
    return curves


def _make_plot(name: str, title: str, axis: Axis, curves: Sequence[pd.DataFrame]) -> Plot:
    drawn_curves = [curve for curve in curves if len(curve) > 1]
    if not drawn_curves:
        raise PlotSkipped("fewer than two steps of it were logged")
    require_change(value for curve in drawn_curves for value in (*curve["y"], *curve.get("low", ())))
    caption = _BAND if any("low" in curve for curve in drawn_curves) else "One training of each setting."
    if omitted_names := ", ".join(curve["series"].iloc[0] for curve in curves if len(curve) == 1):
        caption += f" Not drawn, for its seeds share one step alone: {omitted_names}."
    return chart_plot(name, title, caption, drawn_curves, Axis("step"), axis)
