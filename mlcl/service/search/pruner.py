"""Early stopping with Optuna's pruners: the same reports give the same decisions."""

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
"""Optuna's states of the trials that have ended."""


def rungs(search: SearchConfig, epochs: int, every: int) -> list[int]:
    """The epochs at which trials are compared, before the last one; `every`: epochs between validations.

    All brackets of Hyperband have their rungs among those of ASHA. The median is taken at each validation.
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
    """The pruner that `search.scheduler` names; its resource is the epoch."""
    grace = search.grace * every
    match search.scheduler:
        case "asha":
            return SuccessiveHalvingPruner(min_resource=grace, reduction_factor=search.reduction_factor)
        case "hyperband":
            return HyperbandPruner(
                # Never more than there is: Optuna would make no bracket at all of that.
                min_resource=min(grace, epochs),
                max_resource=epochs,
                reduction_factor=search.reduction_factor,
            )
        case "median":
            return MedianPruner(n_startup_trials=search.startup, n_warmup_steps=grace - 1)
        case "none":
            return NopPruner()


class ReplayPruner:
    """Says at each rung whether a trial goes on.

    It knows what it was told here and nothing else: a resumed sweep tells it again what its trials reported,
    in the same order, and gets the same answers. `name` is the sweep's: Hyperband deals trials to brackets
    by it and their number.
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

    def rung(self, number: int, epoch: int, score: float) -> bool:
        """Whether trial `number` stops at `epoch`. A second report of the same rung is answered as the first.

        A score that is not finite never stops a trial here: it fails on its own.
        """
        if (number, epoch) not in self._decisions:
            self._decisions[number, epoch] = math.isfinite(score) and self._decide(number, epoch, score)
        return self._decisions[number, epoch]

    def close(self, number: int, state: State, score: float | None) -> None:
        """The end of a trial: the median is over the complete ones. What may go on later stays open."""
        if number in self._closed or state not in ENDED:
            return
        self._closed.add(number)
        told = ENDED[state]
        if told is TrialState.COMPLETE and (score is None or not math.isfinite(score)):
            told = TrialState.FAIL
        self._study.tell(self._trial(number), score if told is TrialState.COMPLETE else None, told)

    def _decide(self, number: int, epoch: int, score: float) -> bool:
        trial = self._trial(number)
        trial.report(score, epoch)
        return bool(trial.should_prune())  # the median's is numpy's

    def _trial(self, number: int) -> optuna.Trial:
        # Numbers come in any order and some never: the gaps are trials without a report.
        while len(self._trials) <= number:
            self._trials.append(self._study.ask())
        return self._trials[number]
