"""Curves of the metric over k, lambda and tau of the neighbours. Source: kNN-MLTC Figure 2."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pandas as pd

from mlcl.report.plots.chart import Axis, Chart, Series, mean_series
from mlcl.report.plots.chart_plot import chart_plot
from mlcl.report.plots.knn_scores import AXES, SPLITS, KnnScores
from mlcl.report.plots.plot import Plot, PlotSkipped, require_change

SHOWN = {
    "k": ("k", Axis("k (neighbours)", log=True)),
    "lambda": ("lambda", Axis("lambda (share of the neighbours in the prediction)")),
    "temperature": ("tau", Axis("tau (temperature of the neighbours' weights)", log=True)),
}
"""The short name of each axis, and the axis."""


def curve_plot(axis: str, scores: Mapping[str, KnnScores], metric: str) -> Plot:
    """The metric over one axis, the others at their best. Raises PlotSkipped where the grid has one value."""
    if all(len(each.along(axis)) < 2 for each in scores.values()):
        raise PlotSkipped(f"the grid has one {SHOWN[axis][0]} alone")
    series = [
        _line(_named(setting, SPLITS[split], scores), each, axis, split)
        for setting, each in scores.items()
        for split in SPLITS
        if each.points[split].notna().any()
    ]
    require_change(value for line in series for value in line.y)
    best = [each.points.loc[[each.best]] for each in scores.values()]
    series.append(_marks("best on validation", axis, best))
    own = [each.points.loc[[each.own]] for each in scores.values() if each.own not in (None, each.best)]
    if own:
        series.append(_marks("the job's own", axis, own))
    short, ruler = SHOWN[axis]
    chart = Chart(ruler, Axis(metric), tuple(series))
    return chart_plot(f"knn_{axis}", f"{metric} by {short} of the neighbours", _caption(axis, scores), chart)


def _line(name: str, scores: KnnScores, axis: str, split: str) -> Series:
    points = scores.along(axis)
    deviation = points[f"{split}_sd"]
    known = None if deviation.isna().all() else deviation
    return mean_series(name, points[axis], points[split], known, texts=_texts(points))


def _marks(name: str, axis: str, rows: Sequence[pd.DataFrame]) -> Series:
    """Points on validation and on test."""
    points = pd.concat([each.assign(value=each[split]) for split in SPLITS for each in rows])
    points = points.dropna(subset="value")
    return Series(name, "points", points[axis].tolist(), points["value"].tolist(), texts=_texts(points))


def best_words(scores: KnnScores) -> str:
    """The best point of the grid: `k 50, lambda 0.3, tau 1`."""
    return _texts(scores.points.loc[[scores.best]])[0]


def _texts(points: pd.DataFrame) -> list[str]:
    return [
        ", ".join(f"{SHOWN[axis][0]} {value:.3g}" for axis, value in zip(AXES, row, strict=True))
        for row in points[list(AXES)].itertuples(index=False)
    ]


def _named(setting: str, split: str, scores: Mapping[str, KnnScores]) -> str:
    return split if len(scores) == 1 else f"{setting}, {split}"


def _caption(axis: str, scores: Mapping[str, KnnScores]) -> str:
    others = " and ".join(SHOWN[other][0] for other in AXES if other != axis)
    best = "; ".join(
        f"{f'{setting}: ' if len(scores) > 1 else ''}{best_words(each)}" for setting, each in scores.items()
    )
    text = f"With {others} at the best on validation ({best}). "
    if any(each.points["test"].notna().any() for each in scores.values()):
        text += "The test split is drawn and chooses nothing. "
    if axis == "lambda":
        text += "lambda 0 is the model alone, lambda 1 the neighbours alone. "
    if any(each.own not in (None, each.best) for each in scores.values()):
        text += "The job's own setting lies off the line where its other values differ. "
    if any(each.points["val_sd"].notna().any() for each in scores.values()):
        text += "Means over seeds, bands of one standard deviation. "
    return text.rstrip()
