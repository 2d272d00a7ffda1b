"""The Optuna study of a search, which is built in memory from the ledger's entries and never stored.

A new study is built for each draw. It depends on the entries alone, so that a command that resumes after a
kill draws the same trials as a command that was not killed.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

import optuna
from optuna.distributions import BaseDistribution, json_to_distribution
from optuna.samplers import BaseSampler
from optuna.storages import BaseStorage
from optuna.trial import FrozenTrial, TrialState, create_trial

from mlcl.config import Space
from mlcl.service.engine.entries import EarlierTrial, Entry, SpaceVersion
from mlcl.service.search.sampler import build_sampler
from mlcl.service.search.sampling import draw
from mlcl.tracking import State

LEARNT, BEST = 400, 100
"""The number of trials that a draw learns from, and how many of these are the best of all earlier ones."""
FORGETFUL = ("tpe", "gp", "random")
"""The samplers that can do without some of the earlier trials."""

STATES = {
    State.RUNNING: TrialState.RUNNING,
    State.COMPLETE: TrialState.COMPLETE,
    State.PRUNED: TrialState.PRUNED,
    State.FAILED: TrialState.FAIL,
    State.BUDGET: TrialState.WAITING,
    State.STOPPED: TrialState.WAITING,
}
"""Optuna's state for each state of a training; an interrupted one is WAITING, since it can be resumed."""


def build_study(
    version: SpaceVersion,
    trials: Sequence[Entry],
    name: str,
    *,
    sampler: BaseSampler | None = None,
    storage: BaseStorage | None = None,
) -> optuna.Study:
    """Builds the study of a space version, with the earlier trials that fit it and then its own trials."""
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    study = optuna.create_study(
        study_name=name,
        storage=storage,
        sampler=sampler,
        pruner=optuna.pruners.NopPruner(),
        directions=["maximize" if mode == "max" else "minimize" for mode in version.modes],
    )
    known = {name: json_to_distribution(text) for name, text in version.distributions.items()}
    for key, earlier in version.kept.items():
        study.add_trial(_frozen(earlier, study, known, {"from": key, "state": earlier.state}))
    for entry in trials:
        attrs = {name: getattr(entry, name) for name in ("label", "settings", "state", "reason", "chosen")}
        study.add_trial(_frozen(entry, study, known, attrs, entry.system_attrs))
    return study


def _frozen(
    trial: Entry | EarlierTrial,
    study: optuna.Study,
    known: Mapping[str, BaseDistribution],
    user_attrs: dict[str, Any],
    system_attrs: dict[str, Any] | None = None,
) -> FrozenTrial:
    intermediate = {epoch: score for epoch, score in trial.intermediate if math.isfinite(score)}
    if len(study.directions) > 1:
        intermediate = {}  # Optuna has intermediate values for one goal only
    values = trial.values if trial.state is State.COMPLETE else None
    if trial.state is State.PRUNED and intermediate:
        values = [intermediate[max(intermediate)]]
    frozen = create_trial(
        state=STATES[trial.state],
        values=values,
        params=trial.params,
        distributions={name: known[name] for name in trial.params},
        intermediate_values=intermediate,
        user_attrs=user_attrs,
        system_attrs=system_attrs,
    )
    if isinstance(trial, Entry) and trial.cost.seen:  # Optuna's own times are those of this call
        frozen.datetime_start = datetime.fromtimestamp(trial.cost.seen - trial.cost.seconds)
        if frozen.datetime_complete is not None:
            frozen.datetime_complete = datetime.fromtimestamp(trial.cost.seen)
    return frozen


def trials_to_learn(trials: Sequence[Entry], space: Space, version: SpaceVersion) -> Sequence[Entry]:
    """Returns the trials that a draw learns from, in the order in which they were drawn.

    Of more than LEARNT trials, the best BEST and the latest are taken, LEARNT in all, so that a draw does not
    take longer as trials accumulate. A search with several goals, or with a sampler that needs every trial,
    takes all of them.
    """
    if len(trials) <= LEARNT or len(version.modes) > 1 or space.search.sampler not in FORGETFUL:
        return trials
    earlier, latest = trials[: BEST - LEARNT], trials[BEST - LEARNT :]
    sign = -1 if version.modes[0] == "max" else 1
    scored = [(sign * each.score, n) for n, each in enumerate(earlier) if each.score is not None]
    best = heapq.nsmallest(BEST, ((score, n) for score, n in scored if not math.isnan(score)))
    return [*(earlier[n] for n in sorted(n for _, n in best)), *latest]


def draw_trial(
    space: Space,
    version: SpaceVersion,
    trials: Sequence[Entry],
    starts: Sequence[Mapping[str, Any]],
    asked: Mapping[str, Any] | None = None,
) -> tuple[dict[str, Any], FrozenTrial]:
    """Draws a new trial; returns its settings by job key, and the Optuna trial.

    `trials` are all of the version so far; an interrupted one counts as running. `starts` are the points of
    the first trials of a version, without those of reused trials, and `asked` is a point that the user asked
    for.
    """
    known = trials_to_learn(trials, space, version)
    running = [replace(each, state=State.RUNNING) if each.resumable else each for each in known]
    sampler = build_sampler(space.search, len(trials) - len(known))
    study = build_study(version, running, "draw", sampler=sampler)
    earlier = [each.params for each in version.kept.values()]
    earlier += [each.params for each in trials if each.origin == "asked for"]
    waiting = [point for point in starts if point not in earlier]
    begun = sum(each.origin != "asked for" for each in trials)
    if asked is not None or begun < len(waiting):
        study.enqueue_trial(dict(waiting[begun] if asked is None else asked))
    settings = draw(space, study.ask())
    return settings, study.get_trials(deepcopy=False)[-1]
