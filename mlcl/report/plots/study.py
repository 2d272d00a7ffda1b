"""A search as an Optuna study in memory, for Optuna's own plots."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import optuna
import pandas as pd
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
