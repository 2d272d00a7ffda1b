"""Parallel coordinates of the trials over the keys that a search varied."""

from __future__ import annotations

from matplotlib.figure import Figure
from optuna.visualization import matplotlib as still
from optuna.visualization import plot_parallel_coordinate
from plotly.graph_objects import Figure as Interactive

from mlcl.report.plots import style
from mlcl.report.plots.names import short
from mlcl.report.plots.optuna_plots import optuna_figure, optuna_interactive
from mlcl.report.plots.plot import Plot
from mlcl.report.plots.requirements import differing_keys
from mlcl.report.plots.study import study_of
from mlcl.report.sweep_data import SweepData


def parallel_plot(data: SweepData) -> Plot:
    """A line for each complete trial over all varied keys. Raises PlotSkipped where they differ in none."""
    keys = differing_keys(data)
    return Plot(
        "parallel",
        "Complete trials across all varied keys",
        f"One line a trial: the darker, the better its {data.score}.",
        data.complete[["number", "score", *keys]].rename(columns={"number": "trial"}),
        lambda: _still(data, keys),
        lambda: _live(data, keys),
    )


def _still(data: SweepData, keys: list[str]) -> Figure:
    names = sorted(style.as_text(short(key)) for key in keys)
    score = style.as_text(data.score)
    study = study_of(data, text=style.as_text)
    figure = optuna_figure(still.plot_parallel_coordinate, study, names, mode=data.mode, target_name=score)
    figure.set_size_inches(max(style.WIDTH, 1.1 * len(names) + 2), style.HEIGHT + 0.6)
    # Optuna shortens long names.
    figure.axes[0].set_xticks(range(len(names) + 1), [score, *names], rotation=25, ha="right")
    return figure


def _live(data: SweepData, keys: list[str]) -> Interactive:
    names = sorted(style.as_html(short(key)) for key in keys)
    score = style.as_html(data.score)
    study = study_of(data, text=style.as_html)
    figure = optuna_interactive(plot_parallel_coordinate, study, names, mode=data.mode, target_name=score)
    figure.update_xaxes(ticktext=[score, *names], automargin=True)
    # The palest lines would not be visible on white.
    figure.update_layout(plot_bgcolor="#e4e4e4")
    return figure
