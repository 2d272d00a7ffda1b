"""Prunes trials with Optuna's pruners so that a resumed sweep gets the same answers to the same reports."""

from __future__ import annotations

import math

import optuna
from optuna.pruners import BasePruner, HyperbandPruner, MedianPruner, NopPruner, SuccessiveHalvingPruner
from optuna.samplers import RandomSampler
from optuna.storages import InMemoryStorage
from optuna.trial import TrialState

from mlcl.config import SearchConfig
from mlcl.tracking import State

ENDED = {
    State.COMPLETE: TrialState.COMPLETE,
    State.PRUNED: TrialState.PRUNED,
    State.FAILED: TrialState.FAIL,
}
"""Optuna's state for each state of an ended trial."""


def rungs(search: SearchConfig, epochs: int, every: int) -> list[int]:
    """Returns the epochs before the last one at which trials are compared, with a validation `every` epochs.

    The rungs of all brackets of Hyperband are among those of ASHA.
    """
    if search.scheduler == "none":
        return []
    if search.scheduler == "median":
        return list(range(every, epochs, every))
    epoch, found = search.grace * every, []
    while epoch < epochs:
        found.append(epoch)
        epoch *= search.reduction_factor
    return found


def build_pruner(search: SearchConfig, *, epochs: int, every: int) -> BasePruner:
    """Builds the pruner that `search.scheduler` names; its resource is the epoch."""
    grace = search.grace * every
    match search.scheduler:
        case "asha":
            return SuccessiveHalvingPruner(min_resource=grace, reduction_factor=search.reduction_factor)
        case "hyperband":
            return HyperbandPruner(
                # With more than there is Optuna would make no bracket.
                min_resource=min(grace, epochs),
                max_resource=epochs,
                reduction_factor=search.reduction_factor,
            )
        case "median":
            return MedianPruner(n_startup_trials=search.startup, n_warmup_steps=grace - 1)
        case "none":
            return NopPruner()


class ReplayPruner:
    """A pruner whose answers depend only on the reports it gets.

    A resumed sweep reports the intermediate values of its trials again, in the same order, and gets the same
    answers. From `name`, the sweep's, Hyperband computes a trial's bracket together with its number.
    """

    def __init__(self, search: SearchConfig, mode: str, *, epochs: int, every: int, name: str) -> None:
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        self._study = optuna.create_study(
            study_name=name,
            storage=InMemoryStorage(),
            sampler=RandomSampler(),
            pruner=build_pruner(search, epochs=epochs, every=every),
            direction="maximize" if mode == "max" else "minimize",
        )
        self._trials: list[optuna.Trial] = []
        self._closed: set[int] = set()
        self._decisions: dict[tuple[int, int], bool] = {}

    def should_prune(self, number: int, epoch: int, score: float) -> bool:
        """Reports an intermediate value of trial `number`; returns whether the trial is pruned at this epoch.

        A score that is not finite never prunes a trial, which will fail at its end.
        """
        if (number, epoch) not in self._decisions:
            decided = False
            if math.isfinite(score):
                trial = self._trial(number)
                trial.report(score, epoch)
                decided = bool(trial.should_prune())  # the median's is numpy's
            self._decisions[number, epoch] = decided
        return self._decisions[number, epoch]

    def tell(self, number: int, state: State, score: float | None) -> None:
        """Passes the end of a trial to Optuna; ignores an interrupted trial, since it can be resumed."""
        if number in self._closed or state not in ENDED:
            return
        self._closed.add(number)
        end = ENDED[state]
        if end is TrialState.COMPLETE and (score is None or not math.isfinite(score)):
            end = TrialState.FAIL
        self._study.tell(self._trial(number), score if end is TrialState.COMPLETE else None, end)

    def _trial(self, number: int) -> optuna.Trial:
        # Numbers come in any order, and some never: their trials have no report.
        while len(self._trials) <= number:
            self._trials.append(self._study.ask())
        return self._trials[number]
