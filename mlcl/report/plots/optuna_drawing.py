"""Draws Optuna's plots in the style of the report."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import matplotlib
import numpy as np
import optuna
from matplotlib import pyplot
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from mlcl.report.plots import style
from mlcl.report.plots.matplotlib_backend import legend, log_ruler
from mlcl.report.plots.study import quiet


def optuna_figure(draw: Callable[..., Any], study: optuna.Study, mode: str = "max", **options: Any) -> Figure:
    """Draws a study without a title.

    `draw` is a function of `optuna.visualization.matplotlib`, or calls one. `mode` (max or min) orders the
    colours of scores.
    """
    with quiet(), style.matplotlib_style(), _off_screen():
        figure: Figure = np.ravel(draw(study, **options))[0].figure
        pyplot.close(figure)
        # Without this layout there is no room for the legend and the colour bar.
        figure.set_layout_engine("constrained")
        if figure.get_suptitle():
            figure.suptitle("")
        for axes in figure.axes:
            _restyle(axes, mode)
        _move_legend(figure)
    return figure


@contextmanager
def _off_screen() -> Iterator[None]:
    """Keeps pyplot, with which Optuna draws, from opening a window; restores the backend on exit."""
    before = matplotlib.get_backend(auto_select=False)
    pyplot.switch_backend("agg")
    try:
        yield
    finally:
        if before is not None:
            pyplot.switch_backend(before)


def _move_legend(figure: Figure) -> None:
    """Moves the legend below the axes; removes one with a single entry."""
    first = figure.axes[0]
    own = first.get_legend()
    if own is None:
        return
    own.remove()
    if len(own.get_texts()) > 1:
        legend(figure, first)


def _restyle(axes: Axes, mode: str) -> None:
    axes.set_title("")
    axes.set_title("", loc="left")
    axes.set_facecolor("white")
    axes.grid(False)
    axes.tick_params(which="both", colors="black", labelsize=style.FONT_SIZE - 1)
    for spine in axes.spines.values():
        spine.set_color("#666666")
    for ruler in (axes.xaxis, axes.yaxis):
        ruler.label.set(color="black", fontsize=style.FONT_SIZE)
        if ruler.get_scale() == "log":
            log_ruler(ruler)
    for drawing in axes.collections:
        if drawing.colorbar is not None:
            drawing.set_cmap(style.score_colormap(mode))
