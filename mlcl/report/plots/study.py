"""A search as an Optuna study in memory, and Optuna's plots of it in the style of the report."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import matplotlib
import numpy as np
import optuna
import pandas as pd
from matplotlib import pyplot
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from optuna.distributions import (
    BaseDistribution,
    CategoricalDistribution,
    FloatDistribution,
    IntDistribution,
)
from optuna.exceptions import ExperimentalWarning
from optuna.study import StudyDirection
from optuna.trial import FrozenTrial, TrialState, create_trial

from mlcl.config import Space
from mlcl.report.plots import style
from mlcl.report.plots.matplotlib_backend import legend, log_ruler
from mlcl.report.plots.trials import short
from mlcl.report.sweep_data import SweepData
from mlcl.tracking import State

_DIRECTIONS = {"max": StudyDirection.MAXIMIZE, "min": StudyDirection.MINIMIZE}
_STATES = {State.COMPLETE: TrialState.COMPLETE, State.PRUNED: TrialState.PRUNED}

_GAP = create_trial(state=TrialState.FAIL)


@contextmanager
def quiet() -> Iterator[None]:
    """Silences Optuna's log and its warnings about experimental functions."""
    verbosity = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ExperimentalWarning)
            yield
    finally:
        optuna.logging.set_verbosity(verbosity)


def study_of(
    data: SweepData, goals: Mapping[str, str] | None = None, text: Callable[[str], str] = str
) -> optuna.Study:
    """The trials of the search under their numbers, with the short names of the varied keys.

    `goals` are columns of the frame with max or min; default: the score. `text` escapes names and categories
    for the drawing library. Trials with missing values, and numbers without a trial, are failed trials.
    """
    goals = goals or {"score": data.mode}
    domains = {key: distribution(data.search[key], key, data.space, text) for key in data.varied}
    by_number = {int(row["number"]): row for _, row in data.search.iterrows()}
    with quiet():
        study = optuna.create_study(directions=[_DIRECTIONS[mode] for mode in goals.values()])
        for number in range(max(by_number, default=-1) + 1):
            row = by_number.get(number)
            study.add_trial(_GAP if row is None else _trial(row, list(goals), domains, text))
    return study


def distribution(
    values: pd.Series[Any], key: str, space: Space, text: Callable[[str], str] = str
) -> BaseDistribution:
    """The domain of a key: the range of the space, widened to all values; of categories, those that occur."""
    drawn = next((p.domain.dimensions(key).get(key) for p in space.parameters if p.name == key), None)
    number = drawn is not None and drawn.kind == "number"
    present = values.dropna().tolist()
    if any(isinstance(value, bool) or not isinstance(value, int | float) for value in present):
        return CategoricalDistribution(sorted({text(str(value)) for value in present}))
    ends = [] if drawn is None or drawn.kind == "position" else [drawn.low, drawn.high]
    low, high = min([*ends, *present]), max([*ends, *present])
    if all(float(value).is_integer() for value in (*present, *ends)) and not number:
        return IntDistribution(int(low), int(high))
    return FloatDistribution(low, high, log=drawn is not None and drawn.log)


def _trial(
    row: pd.Series[Any],
    goals: list[str],
    domains: Mapping[str, BaseDistribution],
    text: Callable[[str], str],
) -> FrozenTrial:
    """A trial with the keys that it has: conditional keys may be missing."""
    kept = {key: domain for key, domain in domains.items() if not pd.isna(row[key])}
    params = {text(short(key)): _value(row[key], domain, text) for key, domain in kept.items()}
    state = _STATES.get(row["state"], TrialState.FAIL)
    figures = [float(row[goal]) for goal in goals if not pd.isna(row[goal])]
    if state == TrialState.COMPLETE and len(figures) < len(goals):
        state = TrialState.FAIL
    return create_trial(
        state=state,
        values=figures if state == TrialState.COMPLETE else None,
        params=params,
        distributions={text(short(key)): domain for key, domain in kept.items()},
    )


def _value(value: Any, domain: BaseDistribution, text: Callable[[str], str]) -> Any:
    if isinstance(domain, CategoricalDistribution):
        return text(str(value))
    return int(value) if isinstance(domain, IntDistribution) else float(value)


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
