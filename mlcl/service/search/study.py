"""The Optuna study of a search, which is built in memory from the ledger's entries and never stored.

A new study is built for each draw. It depends on the entries alone, so that a command that resumes after a
kill draws the same trials as a command that was not killed. Optuna's samplers carry a random state, and some
a cache, from trial to trial; here a new sampler is built for each draw, seeded by the search seed, the
trial's number and the parameter's name.

CMA-ES also needs its state, which Optuna keeps as a pickle in the trials' system attributes. The pickle is
checked before it is loaded, since a pickle can run any code. `CheckedCmaEsSampler` overrides a private method
of Optuna 5.0; nothing else here or in `pruner.py` uses private parts.
"""

from __future__ import annotations

import copy
import hashlib
import io
import math
import pickle
import pkgutil
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from functools import partial
from itertools import islice
from typing import Any

import optuna
from optuna.distributions import BaseDistribution, json_to_distribution
from optuna.samplers import BaseSampler, CmaEsSampler
from optuna.storages import BaseStorage
from optuna.trial import FrozenTrial, TrialState

from mlcl.config import SearchConfig, Space
from mlcl.config.space.search import SAMPLERS
from mlcl.errors import UserError
from mlcl.service.engine.entries import EarlierTrial, Entry, SpaceVersion
from mlcl.service.engine.ledger import Ledger
from mlcl.service.search.sampling import draw
from mlcl.tracking import State

KNOWN = {
    ("cmaes._cma", "CMA"),
    ("cmaes._cmawm", "CMAwM"),
    ("numpy", "dtype"),
    ("numpy", "ndarray"),
    ("numpy._core.multiarray", "_reconstruct"),
    ("numpy._core.multiarray", "scalar"),
}
"""The only classes and functions that the pickle of a CMA-ES optimiser may refer to, as (module, name)."""


class CheckedCmaEsSampler(CmaEsSampler):
    """Optuna's CMA-ES, which raises UserError if its stored state refers to anything outside `KNOWN`."""

    def _concat_optimizer_attrs(self, optimizer_attrs: dict[str, str]) -> str:
        """Returns the hexadecimal text that Optuna unpickles next. Raises UserError if it fails the check."""
        text = super()._concat_optimizer_attrs(optimizer_attrs)
        try:
            _Checked(io.BytesIO(bytes.fromhex(text))).load()
        except Exception as error:  # damaged pickles raise any exception
            raise UserError(
                "the stored state of CMA-ES cannot be read; --fresh begins a new sweep", found=error
            ) from None
        return text


class _Checked(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in KNOWN:
            raise pickle.UnpicklingError(f"{module}.{name}")
        return super().find_class(module, name)


class SeededSampler(BaseSampler):
    """Draws each value with the search's sampler, seeded anew by the trial's number and the value's name.

    So a draw depends only on the trials before it, and not on when the search was interrupted. `left_out` is
    the number of earlier trials that the study lacks.
    """

    def __init__(self, search: SearchConfig, left_out: int = 0) -> None:
        sampler = SAMPLERS[search.sampler]
        startup = {"n_startup_trials": search.startup} if sampler.startup else {}
        self._sampler_factory = partial(pkgutil.resolve_name(sampler.type), **sampler.options, **startup)
        self._seed, self._left_out_count = search.seed, left_out
        self._joint_sampler: BaseSampler | None = None

    def _make_sampler(self, trial: FrozenTrial, name: str = "") -> BaseSampler:
        text = f"{self._seed}/{trial.number + self._left_out_count}/{name}".encode()
        seed = int.from_bytes(hashlib.blake2b(text, digest_size=4).digest(), "big")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
            sampler: BaseSampler = self._sampler_factory(seed=seed)
            return sampler

    def infer_relative_search_space(
        self, study: optuna.Study, trial: FrozenTrial
    ) -> dict[str, BaseDistribution]:
        """Returns the space that the search's sampler draws jointly; `sample_relative` uses this sampler."""
        # Optuna calls sample_relative next, which needs what this sampler computes here.
        self._joint_sampler = self._make_sampler(trial)
        return self._joint_sampler.infer_relative_search_space(study, trial)

    def sample_relative(
        self, study: optuna.Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        """Draws the values of the joint space."""
        assert self._joint_sampler is not None
        return self._joint_sampler.sample_relative(study, trial, search_space)

    def sample_independent(
        self, study: optuna.Study, trial: FrozenTrial, param_name: str, param_distribution: BaseDistribution
    ) -> Any:
        """Draws one value."""
        sampler = self._make_sampler(trial, param_name)
        return sampler.sample_independent(study, trial, param_name, param_distribution)


LEARNT, BEST = 400, 100
"""The largest number of trials that a draw learns from, and how many of them are chosen by their score."""
BOUNDED = ("tpe", "gp", "random")
"""The samplers that learn from at most LEARNT trials; the others need all of them."""

STATES = {
    State.RUNNING: TrialState.RUNNING,
    State.COMPLETE: TrialState.COMPLETE,
    State.PRUNED: TrialState.PRUNED,
    State.FAILED: TrialState.FAIL,
    State.BUDGET: TrialState.WAITING,
    State.STOPPED: TrialState.WAITING,
}
"""Optuna's state for each state of a training; an interrupted one is WAITING, since it can be resumed."""


class _SharedTrial(FrozenTrial):
    """A trial whose deep copies are shallow: nothing changes its parts, and copying them is slow."""

    def __deepcopy__(self, memo: dict[int, Any]) -> FrozenTrial:
        return copy.copy(self)


def build_study(
    version: SpaceVersion,
    trials: Sequence[Entry],
    name: str,
    *,
    sampler: BaseSampler | None = None,
    storage: BaseStorage | None = None,
) -> optuna.Study:
    """Builds the study of a space version from the earlier trials that fit it, followed by `trials`."""
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    study = optuna.create_study(
        study_name=name,
        storage=storage,
        sampler=sampler,
        pruner=optuna.pruners.NopPruner(),
        directions=["maximize" if mode == "max" else "minimize" for mode in version.modes],
    )
    distributions = {name: json_to_distribution(text) for name, text in version.distributions.items()}
    for key, trial in version.kept.items():
        study.add_trial(_freeze_trial(trial, study, distributions, {"from": key, "state": trial.state}))
    for entry in trials:
        attrs = {name: getattr(entry, name) for name in ("label", "settings", "state", "reason", "chosen")}
        study.add_trial(_freeze_trial(entry, study, distributions, attrs, entry.system_attrs))
    return study


def _freeze_trial(
    trial: Entry | EarlierTrial,
    study: optuna.Study,
    distributions: Mapping[str, BaseDistribution],
    user_attrs: dict[str, Any],
    system_attrs: dict[str, Any] | None = None,
) -> FrozenTrial:
    intermediate = {epoch: score for epoch, score in trial.intermediate if math.isfinite(score)}
    if len(study.directions) > 1:
        intermediate = {}  # Optuna supports intermediate values only for a single goal
    values = trial.values if trial.state is State.COMPLETE else None
    if trial.state is State.PRUNED and intermediate:
        values = [intermediate[max(intermediate)]]
    state, start, end = STATES[trial.state], datetime.now(), datetime.now()
    if isinstance(trial, Entry) and trial.cost.seen:
        start, end = (datetime.fromtimestamp(trial.cost.seen - age) for age in (trial.cost.seconds, 0))
    return _SharedTrial(
        number=-1,  # the study numbers its trials itself
        trial_id=-1,
        state=state,
        value=None,
        values=values,
        datetime_start=start,
        datetime_complete=end if state.is_finished() else None,
        params=trial.params,
        distributions={name: distributions[name] for name in trial.params},
        intermediate_values=intermediate,
        user_attrs=user_attrs,
        system_attrs=system_attrs or {},
    )


def trials_to_learn(ledger: Ledger, space: Space, version: SpaceVersion, scope: str = "") -> list[Entry]:
    """Returns the trials of a version that a draw learns from, in the order in which they were drawn.

    If there are more than LEARNT trials, the latest LEARNT - BEST are taken, and the BEST complete ones with
    the best scores before these, so that a draw does not take longer as trials accumulate. A search with
    several goals, or with a sampler that needs every trial, takes all of them.
    """
    count = ledger.trial_count(version.number, scope)
    if count <= LEARNT or len(version.modes) > 1 or space.search.sampler not in BOUNDED:
        return ledger.trials(version.number, scope)
    latest_trials = ledger.trials(version.number, scope, start=count + BEST - LEARNT)
    first_number = latest_trials[0].number or 0
    ranked_trials = ledger.ranked_trials(scope, version.modes[0])
    earlier_trials = (
        trial
        for trial in ranked_trials
        if trial.version == version.number and (trial.number or 0) < first_number
    )
    return [*sorted(islice(earlier_trials, BEST), key=lambda trial: trial.number or 0), *latest_trials]


def draw_trial(
    space: Space,
    version: SpaceVersion,
    known_trials: Sequence[Entry],
    count: int,
    first_point: Mapping[str, Any] | None = None,
) -> tuple[dict[str, Any], FrozenTrial]:
    """Draws the trial number `count` of a version; returns its settings by job key, and the Optuna trial.

    `known_trials` are the trials to learn from, among which interrupted trials count as running. If
    `first_point` is given, the trial is at this point, and nothing is drawn.
    """
    trials = [replace(trial, state=State.RUNNING) if trial.resumable else trial for trial in known_trials]
    sampler = SeededSampler(space.search, count - len(known_trials))
    study = build_study(version, trials, "draw", sampler=sampler)
    if first_point is not None:
        study.enqueue_trial(dict(first_point))
    settings = draw(space, study.ask())
    return settings, study.get_trials(deepcopy=False)[-1]
