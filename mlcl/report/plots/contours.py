"""Contours of the score over a temperature and a weight."""

from __future__ import annotations

from itertools import product

from optuna.visualization import matplotlib as still
from optuna.visualization import plot_contour

from mlcl.report.plots import style
from mlcl.report.plots.collection import PlotSkipped
from mlcl.report.plots.importance import importances
from mlcl.report.plots.names import head_key, short
from mlcl.report.plots.optuna_plots import optuna_figure, optuna_interactive
from mlcl.report.plots.plot import Plot
from mlcl.report.plots.requirements import differing_keys, require_complete
from mlcl.report.plots.study import study_of
from mlcl.report.sweep_data import SweepData

_TRIALS = 4
"""Fewest complete trials: fewer span no surface."""
_PLOTS = 4


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
    return [_plot(data, f"contour_{place}", *pair) for place, pair in enumerate(pairs[:_PLOTS], 1)]


def _plot(data: SweepData, name: str, temperature: str, weight: str) -> Plot:
    return Plot(
        name,
        f"{data.score} over {short(temperature)} and {short(weight)}",
        "Between the complete trials (dots) the surface is interpolated; other keys differ between them too.",
        data.complete[["number", temperature, weight, "score"]].rename(columns={"number": "trial"}),
        lambda: optuna_figure(
            still.plot_contour,
            study_of(data, text=style.as_text),
            mode=data.mode,
            params=[style.as_text(short(key)) for key in (temperature, weight)],
            target_name=style.as_text(data.score),
        ),
        lambda: optuna_interactive(
            plot_contour,
            study_of(data, text=style.as_html),
            mode=data.mode,
            params=[style.as_html(short(key)) for key in (temperature, weight)],
            target_name=style.as_html(data.score),
        ),
    )
