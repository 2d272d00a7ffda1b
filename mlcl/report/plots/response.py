"""The score over one key: the temperature of a head (tau), or the weight of all heads (gamma)."""

from __future__ import annotations

import pandas as pd

from mlcl.report.plots.chart import Axis, Chart, Series, mean_series
from mlcl.report.plots.chart_plot import chart_plot
from mlcl.report.plots.plot import Plot, PlotSkipped
from mlcl.report.plots.trials import best_number, head_key, pruned_note, pruned_trials, require_complete
from mlcl.report.sweep_data import SweepData
from mlcl.tracking.names import CLASSIFIER_WEIGHT


def tau_plots(data: SweepData) -> list[Plot]:
    """A plot for each head whose temperature varies. Raises PlotSkipped for none."""
    require_complete(data)
    heads = {head: key for key in data.varied if (head := head_key(key, "temperature"))}
    if not heads:
        raise PlotSkipped("no temperature differs between the trials")
    return [
        _plot(data, f"tau_{head}", Axis(f"temperature of {head}", log=True), data.search[key])
        for head, key in heads.items()
    ]


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


def _plot(data: SweepData, name: str, axis: Axis, x: pd.Series[float]) -> Plot:
    """A curve of mean and deviation where every value has several trials; otherwise the trials."""
    columns = ["number", "setting", "score"]
    complete, early = (
        frame[columns].assign(x=x.reindex(frame.index)).dropna(subset="x")
        for frame in (data.complete, pruned_trials(data))
    )
    if _repeats(complete["x"]):
        series: tuple[Series, ...] = (_mean(complete),)
        caption = "Mean over the complete trials at each value; the band is their standard deviation."
    else:
        best = complete["number"] == best_number(data)
        clouds = {"complete": complete[~best], "best": complete[best], "stopped early": early}
        series = tuple(_cloud(name, cloud) for name, cloud in clouds.items() if len(cloud))
        caption = f"Other keys differ between the trials too.{pruned_note(data)}"
    return chart_plot(
        name, f"{data.score} by the {axis.label}", caption, Chart(axis, Axis(data.score), series)
    )


def _repeats(x: pd.Series[float]) -> bool:
    """Whether there are several values and each occurs more than once."""
    return x.nunique() > 1 and bool(x.value_counts().min() > 1)


def _mean(frame: pd.DataFrame) -> Series:
    groups = frame.groupby("x")["score"].agg(["mean", "std"])
    return mean_series("mean", groups.index, groups["mean"], groups["std"])


def _cloud(name: str, frame: pd.DataFrame) -> Series:
    x, y = frame["x"].tolist(), frame["score"].tolist()
    return Series(name, "points", x, y, texts=frame["setting"].tolist())
