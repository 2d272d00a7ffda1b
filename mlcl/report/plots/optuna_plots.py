"""Optuna's pictures in our style."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import matplotlib
import numpy as np
from matplotlib import pyplot
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from plotly.graph_objects import Figure as Interactive

from mlcl.report.plots import style
from mlcl.report.plots.matplotlib_backend import legend, log_ruler
from mlcl.report.plots.plotly_backend import LOG, dress
from mlcl.report.plots.study import quiet


def drawn(draw: Callable[..., Any], *asked: Any, mode: str = "max", **options: Any) -> Figure:
    """The figure that a function of `optuna.visualization.matplotlib` draws, without its title.

    Where it colours by the score, `mode` says which end is the better.
    """
    with quiet(), style.styled(), _off_screen():
        figure: Figure = np.ravel(draw(*asked, **options))[0].figure
        pyplot.close(figure)
        # The legend and the colour bar get their room from this layout alone.
        figure.set_layout_engine("constrained")
        if figure.get_suptitle():
            figure.suptitle("")
        for axes in figure.axes:
            _restyle(axes, mode)
        _move_legend(figure)
    return figure


def explored(explore: Callable[..., Any], *asked: Any, mode: str = "max", **options: Any) -> Interactive:
    """The figure that a function of `optuna.visualization` draws, without its title."""
    with quiet():
        figure = explore(*asked, **options)
    figure.update_layout(title=None)
    figure.update_traces(colorscale=style.scale(mode), reversescale=False, selector={"type": "contour"})
    figure.update_traces(colorbar_title_side="right", selector={"type": "contour"})
    figure.update_xaxes(LOG, selector={"type": "log"})
    figure.update_yaxes(LOG, selector={"type": "log"})
    return dress(figure, legend=sum(bool(trace.name) for trace in figure.data) > 1)


@contextmanager
def _off_screen() -> Iterator[None]:
    """Optuna draws with pyplot: no window opens, and a notebook keeps its own backend."""
    before = matplotlib.get_backend(auto_select=False)
    pyplot.switch_backend("agg")
    try:
        yield
    finally:
        if before is not None:
            pyplot.switch_backend(before)


def _move_legend(figure: Figure) -> None:
    """From beside the points, or over them, to below; one entry alone says no more than the axis."""
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
            drawing.set_cmap(style.scale(mode))
