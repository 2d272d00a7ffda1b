"""How the score answers to one setting: a head's temperature (tau), the heads' share of the loss (gamma)."""

from __future__ import annotations

import pandas as pd

from mlcl.report.plots.chart import Axis, Chart, Series
from mlcl.report.plots.chart_plot import chart_plot
from mlcl.report.plots.collection import PlotSkipped
from mlcl.report.plots.names import head_key
from mlcl.report.plots.plot import Plot
from mlcl.report.plots.requirements import best_number, need_complete, stopped_early, told_early
from mlcl.report.sweep_data import SweepData
from mlcl.tracking.names import CLASSIFIER_WEIGHT


def tau_plots(data: SweepData) -> list[Plot]:
    """A curve for each head whose temperature varied. Raises LeftOut where none did."""
    need_complete(data)
    heads = {head: key for key in data.varied if (head := head_key(key, "temperature"))}
    if not heads:
        raise PlotSkipped("no temperature differs between the trials")
    return [
        _plot(data, f"tau_{head}", Axis(f"temperature of {head}", log=True), data.search[key])
        for head, key in heads.items()
    ]


def gamma_plot(data: SweepData) -> Plot:
    """The curve of the heads' weight beside the classifier's. Raises LeftOut where it did not vary."""
    need_complete(data)
    gamma = heads_weight(data.search)
    if gamma.nunique() < 2:
        raise PlotSkipped("the weight of all heads together is the same in all trials")
    return _plot(data, "gamma", Axis("weight of all heads"), gamma)


def heads_weight(frame: pd.DataFrame) -> pd.Series[float]:
    """What the classifier leaves of 1; where its weight is fixed, the sum of theirs."""
    if CLASSIFIER_WEIGHT in frame and frame[CLASSIFIER_WEIGHT].nunique() > 1:
        return 1 - frame[CLASSIFIER_WEIGHT].astype(float)
    return frame[[key for key in frame.columns if head_key(key, "weight")]].astype(float).sum(axis=1)


def _plot(data: SweepData, name: str, axis: Axis, x: pd.Series[float]) -> Plot:
    """Mean and standard deviation where every value was trained twice or more; the trials otherwise."""
    columns = ["number", "setting", "score"]
    complete, early = (
        frame[columns].assign(x=x.reindex(frame.index)).dropna(subset="x")
        for frame in (data.complete, stopped_early(data))
    )
    if _repeats(complete["x"]):
        series: tuple[Series, ...] = (_mean(complete),)
        caption = "Mean over the complete trials at each value; the band is their standard deviation."
    else:
        best = complete["number"] == best_number(data)
        clouds = {"complete": complete[~best], "best": complete[best], "stopped early": early}
        series = tuple(_cloud(name, cloud) for name, cloud in clouds.items() if len(cloud))
        caption = f"Other keys differ between the trials too.{told_early(data)}"
    return chart_plot(
        name, f"{data.score} by the {axis.label}", caption, Chart(axis, Axis(data.score), series)
    )


def _repeats(x: pd.Series[float]) -> bool:
    """Whether there are several values, each more than once."""
    return x.nunique() > 1 and bool(x.value_counts().min() > 1)


def _mean(frame: pd.DataFrame) -> Series:
    groups = frame.groupby("x")["score"].agg(["mean", "std"])
    low, high = groups["mean"] - groups["std"], groups["mean"] + groups["std"]
    return Series("mean", "line", groups.index.tolist(), groups["mean"].tolist(), low.tolist(), high.tolist())


def _cloud(name: str, frame: pd.DataFrame) -> Series:
    x, y = frame["x"].tolist(), frame["score"].tolist()
    return Series(name, "points", x, y, texts=frame["setting"].tolist())
