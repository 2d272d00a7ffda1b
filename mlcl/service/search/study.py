"""The Optuna study of a search: trials are asked from it and told to it, each once, in their true state.

Every function may be called again after a kill at any point: a half-drawn trial is handed out again, and
what has been told already is left alone. `StoredStudy` uses private parts of Optuna; read against Optuna 5.0.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

import optuna
from optuna.distributions import BaseDistribution
from optuna.storages import BaseStorage
from optuna.study import StudyDirection
from optuna.trial import FrozenTrial, TrialState, create_trial

from mlcl.config import Space
from mlcl.errors import UserError
from mlcl.service.engine.entries import Entry
from mlcl.service.search.sampler import build_sampler
from mlcl.service.search.study_storage import KEY
from mlcl.tracking import State

STATE = {
    State.RUNNING: TrialState.RUNNING,
    State.COMPLETE: TrialState.COMPLETE,
    State.PRUNED: TrialState.PRUNED,
    State.FAILED: TrialState.FAIL,
    State.BUDGET: TrialState.WAITING,
    State.STOPPED: TrialState.WAITING,
}
"""Optuna's word for a state. What a budget or a person stopped waits to go on."""


class StoredStudy:
    """Trials of a study in its storage, in any state: Optuna's own interface has no way back to RUNNING."""

    def __init__(self, study: optuna.Study) -> None:
        self._study, self._storage, self._id = study, study._storage, study._study_id

    def new(self) -> optuna.Trial:
        """A new trial that runs. Study.ask would hand out one that waits."""
        return optuna.Trial(self._study, self._storage.create_new_trial(self._id))

    def add(self, trial: FrozenTrial) -> int:
        """Adds a trial as it is; its number."""
        id = self._storage.create_new_trial(self._id, template_trial=trial)
        return self._storage.get_trial_number_from_id(id)

    def trial(self, number: int) -> optuna.Trial:
        """A trial to go on with."""
        return optuna.Trial(self._study, self._id_of(number))

    def read(self, number: int) -> FrozenTrial:
        """A trial as it is stored."""
        return self._storage.get_trial(self._id_of(number))

    def set_state(self, number: int, state: TrialState) -> None:
        """Raises RuntimeError where the trial has finished."""
        self._storage.set_trial_state_values(self._id_of(number), state)

    def set_rung(self, number: int, epoch: int, score: float) -> None:
        """An intermediate value."""
        self._storage.set_trial_intermediate_value(self._id_of(number), epoch, score)

    def set_attr(self, number: int, key: str, value: Any) -> None:
        """A user attribute."""
        self._storage.set_trial_user_attr(self._id_of(number), key, value)

    def _id_of(self, number: int) -> int:
        return self._storage.get_trial_id_from_study_id_trial_number(self._id, number)


def open_study(storage: BaseStorage, name: str, space: Space) -> optuna.Study:
    """The study `name`, made where it is new. Raises UserError where it exists with other goals."""
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    directions = [
        StudyDirection.MAXIMIZE if goal.mode == "max" else StudyDirection.MINIMIZE for goal in space.goals
    ]
    study = optuna.create_study(
        study_name=name,
        storage=storage,
        sampler=build_sampler(space.search, space.goals),
        pruner=optuna.pruners.NopPruner(),
        directions=directions,
        load_if_exists=True,
    )
    if study.directions != directions:
        found, allowed = ([one.name.lower() for one in each] for each in (study.directions, directions))
        raise UserError(f"the study {name} has other goals", key=KEY, found=found, allowed=allowed)
    return study


def ask(study: optuna.Study, known: Collection[int]) -> optuna.Trial:
    """A trial to draw settings for: an unfinished one that is not `known`, else a new one.

    A command that was killed while it drew leaves a trial that no ledger has: its settings so far stay, the
    others are drawn as they would have been. Reopen the known trials that wait before asking: a brute force
    does not count them otherwise.
    """
    unfinished = study.get_trials(deepcopy=False, states=(TrialState.RUNNING, TrialState.WAITING))
    for trial in unfinished:
        if trial.number not in known:
            reopen(study, trial.number)
            return StoredStudy(study).trial(trial.number)
    return StoredStudy(study).new()


def reopen(study: optuna.Study, number: int) -> None:
    """A waiting trial runs again; one that runs goes on. Raises RuntimeError where it has finished."""
    StoredStudy(study).set_state(number, TrialState.RUNNING)


def tell(
    study: optuna.Study,
    number: int,
    state: State,
    values: Sequence[float] | None,
    rungs: Iterable[tuple[int, float]],
    attrs: Mapping[str, Any],
) -> None:
    """What became of a trial: its rungs and attributes, then its state, so that it can be told again.

    A complete trial with a value that is not finite is a failure. With several goals there are no rungs:
    Optuna has intermediate values for one only. Raises RuntimeError where it has finished in another state.
    """
    stored = StoredStudy(study)
    trial = stored.read(number)
    target = STATE[state]
    if target is TrialState.COMPLETE and not all(math.isfinite(value) for value in values or ()):
        target = TrialState.FAIL
    if trial.state.is_finished():
        if trial.state is not target:
            raise RuntimeError(f"trial {number} is told {target.name}, and was told {trial.state.name}")
        return
    for epoch, score in _reportable(study, rungs):
        if trial.intermediate_values.get(epoch) != score:
            stored.set_rung(number, epoch, score)
    for key, value in attrs.items():
        if key not in trial.user_attrs or trial.user_attrs[key] != value:
            stored.set_attr(number, key, value)
    if target.is_finished():
        reopen(study, number)
        study.tell(number, values if target is TrialState.COMPLETE else None, target)
    elif target is TrialState.WAITING and trial.state is TrialState.RUNNING:
        stored.set_state(number, TrialState.WAITING)


def sync_study(study: optuna.Study, entry: Entry) -> None:
    """Tells a search trial's rungs, values, settings and state to its study."""
    assert entry.study_number is not None
    attrs: dict[str, Any] = {
        "settings": dict(entry.settings),
        "label": entry.label,
        "state": entry.state,
        "reason": entry.reason,  # also where there is none: an earlier one must not stay
    }
    if entry.chosen:
        attrs["chosen"] = dict(entry.chosen)
    values = entry.values if entry.state is State.COMPLETE else None
    tell(study, entry.study_number, entry.state, values, entry.rungs, attrs)


def add_done(
    study: optuna.Study,
    params: Mapping[str, Any],
    distributions: Mapping[str, BaseDistribution],
    state: State,
    values: Sequence[float] | None,
    rungs: Iterable[tuple[int, float]],
    attrs: Mapping[str, Any],
) -> int:
    """Adds a trial that finished elsewhere and returns its number.

    With `attrs` that say where it comes from it is added once: a second time it is found by them.
    """
    for trial in study.get_trials(deepcopy=False):
        if attrs and trial.state.is_finished() and trial.user_attrs == attrs:
            return trial.number
    intermediate = dict(_reportable(study, rungs))
    if state is State.PRUNED:
        values = [intermediate[max(intermediate)]] if intermediate else None
    done = create_trial(
        state=STATE[state],
        values=None if values is None else list(values),
        params=dict(params),
        distributions=dict(distributions),
        intermediate_values=intermediate,
        user_attrs=dict(attrs),
    )
    if done.values is not None and len(done.values) != len(study.directions):
        raise ValueError(f"{len(done.values)} values for {len(study.directions)} goals")
    return StoredStudy(study).add(done)


def _reportable(study: optuna.Study, rungs: Iterable[tuple[int, float]]) -> list[tuple[int, float]]:
    if len(study.directions) > 1:
        return []
    return [(epoch, float(score)) for epoch, score in rungs if math.isfinite(score)]
