"""The score over each varied key."""

from __future__ import annotations

from typing import Any

import numpy as np
import optuna
import pandas as pd
from matplotlib.figure import Figure
from optuna.visualization import matplotlib as still
from optuna.visualization import plot_slice
from plotly.graph_objects import Figure as Interactive

from mlcl.report.plots import style
from mlcl.report.plots.names import short
from mlcl.report.plots.optuna_plots import optuna_figure, optuna_interactive
from mlcl.report.plots.plot import Plot
from mlcl.report.plots.requirements import differing_keys
from mlcl.report.plots.study import study_of
from mlcl.report.sweep_data import SweepData

_COLUMNS = 3
"""Most panels in a row: more could not be read on a phone."""
_ROW = 2.6
"""Height of a row of panels in inches."""


def slice_plot(data: SweepData) -> Plot:
    """A panel for each key. Raises PlotSkipped where complete trials differ in none."""
    keys = differing_keys(data)
    return Plot(
        "slice",
        f"{data.score} against each varied key",
        "Complete trials; other keys differ between them too. The darker, the later the trial.",
        _table(data, keys),
        lambda: optuna_figure(
            _still,
            study_of(data, text=style.as_text),
            [style.as_text(short(key)) for key in keys],
            style.as_text(data.score),
        ),
        lambda: optuna_interactive(
            _live,
            study_of(data, text=style.as_html),
            [style.as_html(short(key)) for key in keys],
            style.as_html(data.score),
        ),
    )


def _table(data: SweepData, keys: list[str]) -> pd.DataFrame:
    rows = [
        (key, row[key], row["score"], row["number"])
        for key in keys
        for _, row in data.complete.iterrows()
        if not pd.isna(row[key])
    ]
    return pd.DataFrame(rows, columns=["key", "value", "score", "trial"])


def _still(study: optuna.Study, keys: list[str], score: str) -> Any:
    """Optuna's single row of panels, rearranged into several rows."""
    panels = np.ravel(np.asarray(still.plot_slice(study, keys, target_name=score)))
    figure: Figure = panels[0].figure
    points = panels[-1].collections[0]
    points.colorbar.remove()
    rows = -(-len(panels) // _COLUMNS)
    columns = min(len(panels), _COLUMNS)
    grid = figure.add_gridspec(rows, columns)
    for position, axes in enumerate(panels):
        axes.set_subplotspec(grid[position // columns, position % columns])
        axes.tick_params(labelleft=position % columns == 0)
        axes.set_ylabel(score if position % columns == 0 else "")
        for cloud in axes.collections:
            cloud.set_cmap(style.score_colormap("max"))
    figure.set_size_inches(max(style.WIDTH, 2.4 * columns), max(style.HEIGHT, _ROW * rows))
    figure.colorbar(points, ax=panels.tolist(), label="trial")
    return panels


def _live(study: optuna.Study, keys: list[str], score: str) -> Interactive:
    figure = plot_slice(study, keys, target_name=score)
    figure.update_layout(width=180 * len(keys) + 160)
    return figure
