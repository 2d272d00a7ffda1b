"""Plots of the score over the varied keys of a search, drawn by Optuna."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import optuna
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from optuna.importance import get_param_importances
from optuna.visualization import matplotlib as still
from optuna.visualization import plot_contour, plot_parallel_coordinate, plot_param_importances, plot_slice
from plotly.graph_objects import Figure as Interactive

from mlcl.report.plots import style
from mlcl.report.plots.optuna_drawing import Options, optuna_drawings
from mlcl.report.plots.plot import Plot, PlotSkipped
from mlcl.report.plots.study import quiet, study_of
from mlcl.report.plots.trials import differing_keys, head_key, require_complete, short
from mlcl.report.sweep_data import SweepData

_COLUMNS = 3
"""Most slices in a row: more could not be read on a phone."""
_ROW = 2.6
"""Height of a row of slices in inches."""
_TRIALS = 4
"""Fewest complete trials of a contour: fewer span no surface."""
_CONTOURS = 4


def importances(data: SweepData) -> dict[str, float]:
    """The share of each varied key in the variance of the score, the largest first. Raises PlotSkipped.

    Computed by PED-ANOVA, which is deterministic and takes keys that only some trials have.
    """
    if data.complete["score"].nunique() < 2:
        raise PlotSkipped("there are no two complete trials with different scores")
    differing_keys(data)
    keys = {short(key): key for key in data.varied}
    with quiet():
        shares = get_param_importances(study_of(data))
    return {keys[name]: share for name, share in shares.items()}


def importance_plot(data: SweepData) -> Plot:
    """The shares of the keys as bars. Raises PlotSkipped where they are unknown."""
    shares = importances(data)
    return Plot(
        "importance",
        "Importance of the varied keys",
        f"Shares by PED-ANOVA over {len(data.complete)} complete trials: how well a key by itself "
        "tells the better trials from the others. Few trials tell little.",
        pd.DataFrame({"key": list(shares), "share": list(shares.values())}),
        *optuna_drawings(
            still.plot_param_importances,
            plot_param_importances,
            lambda text: {"study": study_of(data, text=text)},
        ),
    )


def parallel_plot(data: SweepData) -> Plot:
    """A line for each complete trial over all varied keys. Raises PlotSkipped where they differ in none."""
    keys = differing_keys(data)
    return Plot(
        "parallel",
        "Complete trials across all varied keys",
        f"One line a trial: the darker, the better its {data.score}.",
        data.complete[["number", "score", *keys]].rename(columns={"number": "trial"}),
        *optuna_drawings(_still_parallel, _live_parallel, _over(data, keys), data.mode),
    )


def slice_plot(data: SweepData) -> Plot:
    """A panel for each key. Raises PlotSkipped where complete trials differ in none."""
    keys = differing_keys(data)
    table = data.complete.melt(["score", "number"], keys, "key").dropna(subset="value")
    return Plot(
        "slice",
        f"{data.score} against each varied key",
        "Complete trials; other keys differ between them too. The darker, the later the trial.",
        table[["key", "value", "score", "number"]].rename(columns={"number": "trial"}),
        *optuna_drawings(_still_slices, _live_slices, _over(data, keys)),
    )


def contour_plots(data: SweepData) -> list[Plot]:
    """A plot for each pair of a temperature and a weight, of many the most important. Raises PlotSkipped."""
    require_complete(data, _TRIALS)
    keys = differing_keys(data)
    temperatures, weights = (
        [key for key in keys if head_key(key, option)] for option in ("temperature", "weight")
    )
    if not temperatures or not weights:
        raise PlotSkipped("no temperature and weight differ between complete trials")
    shares = importances(data)
    pairs = sorted(
        product(temperatures, weights), key=lambda pair: -sum(shares.get(key, 0.0) for key in pair)
    )
    return [_contour(data, f"contour_{place}", *pair) for place, pair in enumerate(pairs[:_CONTOURS], 1)]


def _contour(data: SweepData, name: str, temperature: str, weight: str) -> Plot:
    return Plot(
        name,
        f"{data.score} over {short(temperature)} and {short(weight)}",
        "Between the complete trials (dots) the surface is interpolated; other keys differ between them too.",
        data.complete[["number", temperature, weight, "score"]].rename(columns={"number": "trial"}),
        *optuna_drawings(still.plot_contour, plot_contour, _over(data, [temperature, weight]), data.mode),
    )


def _over(data: SweepData, keys: list[str]) -> Options:
    """The arguments of a plot of the score over these keys."""
    return lambda text: {
        "study": study_of(data, text=text),
        "params": [text(short(key)) for key in keys],
        "target_name": text(data.score),
    }


def _still_parallel(study: optuna.Study, params: list[str], target_name: str) -> Axes:
    params = sorted(params)
    axes = still.plot_parallel_coordinate(study, params, target_name=target_name)
    assert isinstance(axes.figure, Figure)
    axes.figure.set_size_inches(max(style.WIDTH, 1.1 * len(params) + 2), style.HEIGHT + 0.6)
    # Optuna shortens long names.
    axes.set_xticks(range(len(params) + 1), [target_name, *params], rotation=25, ha="right")
    return axes


def _live_parallel(study: optuna.Study, params: list[str], target_name: str) -> Interactive:
    params = sorted(params)
    figure = plot_parallel_coordinate(study, params, target_name=target_name)
    figure.update_xaxes(ticktext=[target_name, *params], automargin=True)
    # The palest lines would not be visible on white.
    figure.update_layout(plot_bgcolor="#e4e4e4")
    return figure


def _still_slices(study: optuna.Study, params: list[str], target_name: str) -> Any:
    """Optuna's single row of panels, rearranged into several rows."""
    panels = np.ravel(np.asarray(still.plot_slice(study, params, target_name=target_name)))
    figure: Figure = panels[0].figure
    points = panels[-1].collections[0]
    points.colorbar.remove()
    rows = -(-len(panels) // _COLUMNS)
    columns = min(len(panels), _COLUMNS)
    grid = figure.add_gridspec(rows, columns)
    for position, axes in enumerate(panels):
        axes.set_subplotspec(grid[position // columns, position % columns])
        axes.tick_params(labelleft=position % columns == 0)
        axes.set_ylabel(target_name if position % columns == 0 else "")
        for cloud in axes.collections:
            cloud.set_cmap(style.score_colormap("max"))
    figure.set_size_inches(max(style.WIDTH, 2.4 * columns), max(style.HEIGHT, _ROW * rows))
    figure.colorbar(points, ax=panels.tolist(), label="trial")
    return panels


def _live_slices(study: optuna.Study, params: list[str], target_name: str) -> Interactive:
    figure = plot_slice(study, params, target_name=target_name)
    figure.update_layout(width=180 * len(params) + 160)
    return figure
