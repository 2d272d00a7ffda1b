"""Draws points with three shares of 1 in a triangle, the first part's corner on top."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray

from mlcl.report.plots import style
from mlcl.report.plots.matplotlib_backend import legend

Shares = NDArray[Any]
_CORNERS = np.array([[0.5, np.sqrt(3) / 2], [0.0, 0.0], [1.0, 0.0]])
_LEVELS = (0.2, 0.4, 0.6, 0.8)
_OUTSIDE = ((1, 0.3), (-1, 0.3), (0, -1.4))
"""Offset of a part's numbers from the ends of its lines, in font sizes."""


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
