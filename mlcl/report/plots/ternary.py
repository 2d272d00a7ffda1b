"""The score over the weights of heads and classifier, as points in a triangle."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray

from mlcl.report.plots import style
from mlcl.report.plots.matplotlib_backend import legend
from mlcl.report.plots.plot import Plot, PlotSkipped
from mlcl.report.plots.trials import best_number, head_key, pruned_trials, require_complete
from mlcl.report.sweep_data import SweepData
from mlcl.tracking.names import CLASSIFIER_WEIGHT

Shares = NDArray[Any]
_CORNERS = np.array([[0.5, np.sqrt(3) / 2], [0.0, 0.0], [1.0, 0.0]])
_LEVELS = (0.2, 0.4, 0.6, 0.8)
_OUTSIDE = ((1, 0.3), (-1, 0.3), (0, -1.4))
"""Offset of a part's numbers from the ends of its lines, in font sizes."""
_OTHERS = "others"


@dataclass(frozen=True)
class Triangle:
    """Points by their `shares` (a row each), coloured by `score`; `best` is a row; `early`: pruned trials."""

    parts: tuple[str, str, str]
    shares: Shares
    score: Sequence[float]
    score_name: str
    mode: str
    best: int
    early: Shares


def project(shares: Shares) -> Shares:
    """The x and y of barycentric coordinates."""
    return np.asarray(shares @ _CORNERS)


def draw_triangle(triangle: Triangle) -> Figure:
    """The triangle drawn by matplotlib."""
    with style.matplotlib_style():
        figure = Figure(figsize=(style.WIDTH, style.HEIGHT + 0.6))
        axes = figure.add_subplot(aspect="equal")
        axes.axis("off")
        _draw_lines(axes, triangle.parts)
        if len(triangle.early):
            x, y = project(triangle.early).T
            axes.scatter(x, y, facecolors="none", edgecolors=style.MEANINGS["pruned"], label="pruned")
        x, y = project(triangle.shares).T
        points = axes.scatter(
            x,
            y,
            c=list(triangle.score),
            cmap=style.score_colormap(triangle.mode),
            s=45,
            zorder=3,
            label="complete",
        )
        x, y = project(triangle.shares[[triangle.best]]).T
        axes.scatter(
            x,
            y,
            marker="*",
            s=260,
            facecolor=style.BEST,
            edgecolor="black",
            zorder=4,
            label="best",
        )
        figure.colorbar(points, ax=axes, label=style.as_text(triangle.score_name), shrink=0.7)
        legend(figure, axes)
    return figure


def _draw_lines(axes: Axes, parts: Sequence[str]) -> None:
    """Draws sides, corners, and lines of equal share, each with its number where the next part is 0."""
    axes.plot(*project(np.eye(3)[[0, 1, 2, 0]]).T, color="black", linewidth=1)
    for part, outside in enumerate(_OUTSIDE):
        following, last = (part + 1) % 3, (part + 2) % 3
        for level in _LEVELS:
            ends = np.zeros((2, 3))
            ends[:, part] = level
            ends[0, last] = ends[1, following] = 1 - level
            axes.plot(*project(ends).T, color="#dddddd", linewidth=0.8, zorder=0)
            axes.annotate(
                f"{level:g}",
                tuple(project(ends[0])),
                xytext=outside,
                textcoords="offset fontsize",
                ha=("left", "right", "center")[part],
                fontsize=style.FONT_SIZE - 2,
            )
    names = [style.as_text(part) for part in parts]
    for name, corner, outside in zip(names, _CORNERS, ((0, 0.6), (0, -2.8), (0, -2.8)), strict=True):
        axes.annotate(name, corner, xytext=outside, textcoords="offset fontsize", ha="center")


def ternary_plot(data: SweepData) -> Plot:
    """The score over the weights. Raises PlotSkipped where there are not three or more that vary."""
    require_complete(data)
    complete, early = (shares_of(frame) for frame in (data.complete, pruned_trials(data)))
    parts = three_parts(pd.concat([complete, early]))
    triangle = Triangle(
        parts=(parts[0], parts[1], parts[2]),
        shares=_folded(complete, parts).to_numpy(float),
        score=data.complete["score"].tolist(),
        score_name=data.score,
        mode=data.mode,
        best=data.complete["number"].tolist().index(best_number(data)),
        early=_folded(early, parts).to_numpy(float),
    )
    others = [str(name) for name in complete if name not in parts]
    lumped = f" {_OTHERS.capitalize()}: {', '.join(others)}." if others else ""
    return Plot(
        "ternary",
        f"{data.score} by the shares of the loss",
        f"Each corner is a loss of that part alone.{lumped}",
        _table(data, complete, early),
        partial(draw_triangle, triangle),
    )


def shares_of(frame: pd.DataFrame) -> pd.DataFrame:
    """The weight of each head and of the classifier. Raises PlotSkipped where they do not add up to 1."""
    heads = {head: frame[key] for key in frame.columns if (head := head_key(key, "weight"))}
    if CLASSIFIER_WEIGHT not in frame or not heads:
        raise PlotSkipped("there are no weights of heads and classifier")
    shares = pd.DataFrame({**heads, "classifier": frame[CLASSIFIER_WEIGHT]}).astype(float).fillna(0.0)
    if not np.allclose(shares.sum(axis=1), 1.0, atol=1e-6):
        raise PlotSkipped("the weights of heads and classifier do not add up to 1")
    return shares


def three_parts(shares: pd.DataFrame) -> tuple[str, ...]:
    """The names of the parts: of more than three, the two that vary most and the rest. Raises PlotSkipped."""
    if (shares.nunique() < 2).all():
        raise PlotSkipped("the weights are the same in all trials")
    if shares.shape[1] < 3:
        raise PlotSkipped("two weights that add up to 1 are one number: the gamma curve shows it")
    if shares.shape[1] == 3:
        return tuple(shares.columns)
    spread = shares.std().sort_values(ascending=False, kind="stable")
    return (*spread.index[:2], _OTHERS)


def _folded(shares: pd.DataFrame, parts: tuple[str, ...]) -> pd.DataFrame:
    """The shares of the three parts."""
    if _OTHERS not in parts:
        return shares
    kept = shares[list(parts[:2])]
    return kept.assign(**{_OTHERS: 1 - kept.sum(axis=1)})


def _table(data: SweepData, complete: pd.DataFrame, early: pd.DataFrame) -> pd.DataFrame:
    shares = pd.concat([complete, early]).sort_index()
    trials = data.search.loc[shares.index, ["number", "state", "score"]].rename(columns={"number": "trial"})
    return trials.join(shares)
