"""The metric over k and lambda of the neighbours as a heat map, with the plateau around the best point."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from mlcl.config import default_mode
from mlcl.report.plots import style
from mlcl.report.plots.knn_scores import KnnScores
from mlcl.report.plots.plot import Plot, PlotSkipped, require_change

_MAP = 2.6
"""Height of a setting's map in inches."""
_NAMES = 11
"""Most values that are written on an axis."""


def heat_plot(scores: Mapping[str, KnnScores], metric: str) -> Plot:
    """A map for each setting on validation, tau at its best. Raises PlotSkipped for a single k or lambda."""
    error = standard_error(list(scores.values()))
    maps = {setting: _plane(each, metric, error) for setting, each in scores.items()}
    if any(plane["k"].nunique() < 2 or plane["lambda"].nunique() < 2 for plane in maps.values()):
        raise PlotSkipped("the grid has one k or one lambda alone")
    require_change(value for plane in maps.values() for value in plane[metric])
    caption = "Mean over seeds on validation, tau at its best. The star is the best point."
    if error:
        caption += (
            f" Dots are within one standard error of it ({error:.4f}, pooled over settings and points)."
        )
    table = pd.concat(plane.assign(setting=setting) for setting, plane in maps.items())
    name, title = "knn_heat", f"{metric} by k and lambda of the neighbours"
    return Plot(name, title, caption, table, partial(_draw, maps, metric))


def standard_error(scores: list[KnnScores]) -> float:
    """That of a mean over seeds, with the variance pooled over settings and points; 0 for one seed each."""
    variances = [
        np.square(each.points["val_sd"].dropna()).mean() / each.seeds for each in scores if each.seeds > 1
    ]
    return float(np.sqrt(np.mean(variances))) if variances else 0.0


def _plane(scores: KnnScores, metric: str, error: float) -> pd.DataFrame:
    """The points of the grid at the best tau: k, lambda, the metric, and whether it is near the best."""
    best = scores.points.loc[scores.best]
    points = scores.points[scores.points["in_grid"] & (scores.points["temperature"] == best["temperature"])]
    plane = points[["k", "lambda"]].assign(**{metric: points["val"]}).drop_duplicates(["k", "lambda"])
    return plane.assign(near=(plane[metric] - best["val"]).abs() <= error, best=points.index == scores.best)


def _draw(maps: Mapping[str, pd.DataFrame], metric: str) -> Figure:
    with style.matplotlib_style():
        figure = Figure(figsize=(style.WIDTH, _MAP * len(maps) + 0.4))
        panels = figure.subplots(len(maps), squeeze=False)[:, 0]
        for axes, (setting, plane) in zip(panels, maps.items(), strict=True):
            _draw_map(axes, plane, metric)
            axes.set_title(style.as_text(setting), loc="left")
    return figure


def _draw_map(axes: Axes, plane: pd.DataFrame, metric: str) -> None:
    values = plane.pivot(index="lambda", columns="k", values=metric)
    image = axes.imshow(
        values, origin="lower", aspect="auto", cmap=style.score_colormap(default_mode(metric))
    )
    for kept, marker, size in (("near", ".", 40), ("best", "*", 160)):
        its = plane[plane[kept]]
        x = values.columns.get_indexer(pd.Index(its["k"]))
        y = values.index.get_indexer(pd.Index(its["lambda"]))
        axes.scatter(x, y, s=size, marker=marker, color="white", edgecolor="black", linewidth=0.7)
    axes.grid(False)
    for ticks, names in ((axes.set_xticks, values.columns), (axes.set_yticks, values.index)):
        shown = range(0, len(names), -(-len(names) // _NAMES))
        ticks(shown, [f"{names[place]:g}" for place in shown])
    axes.set(xlabel="k", ylabel="lambda")
    assert isinstance(axes.figure, Figure)
    axes.figure.colorbar(image, ax=axes, label=style.as_text(metric))
