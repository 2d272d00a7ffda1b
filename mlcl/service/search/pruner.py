"""Stops trials early with Optuna's pruners, and searches whose remaining trials would gain too little.

A resumed sweep makes the same decisions, since they depend only on the reported values.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import NormalDist, fmean, stdev

import numpy as np
import optuna
from optuna.pruners import BasePruner, HyperbandPruner, MedianPruner, NopPruner, SuccessiveHalvingPruner
from optuna.samplers import RandomSampler
from optuna.storages import InMemoryStorage
from optuna.trial import TrialState

from mlcl.config import SearchConfig
from mlcl.service.engine.entries import SearchStop
from mlcl.service.engine.ledger import Ledger
from mlcl.service.search.study import STATES
from mlcl.service.search.sweep_plan import SweepPlan
from mlcl.tracking import State


def rungs(search: SearchConfig, epochs: int, every: int) -> list[int]:
    """Returns the epochs before the last at which trials may be compared; Hyperband uses some of ASHA's."""
    if search.scheduler == "none":
        return []
    if search.scheduler == "median":
        return list(range(search.grace * every, epochs, every))
    epoch, rung_epochs = search.grace * every, []
    while epoch < epochs:
        rung_epochs.append(epoch)
        epoch *= search.reduction_factor
    return rung_epochs


def build_pruner(search: SearchConfig, *, epochs: int, every: int) -> BasePruner:
    """Builds the pruner that `search.scheduler` names; its resource is the epoch."""
    grace = search.grace * every
    match search.scheduler:
        case "asha":
            return SuccessiveHalvingPruner(min_resource=grace, reduction_factor=search.reduction_factor)
        case "hyperband":
            return HyperbandPruner(
                # With more than `epochs` Optuna would make no bracket.
                min_resource=min(grace, epochs),
                max_resource=epochs,
                reduction_factor=search.reduction_factor,
            )
        case "median":
            return MedianPruner(n_startup_trials=search.startup, n_warmup_steps=grace)
        case "none":
            return NopPruner()


class ReplayPruner:
    """A pruner whose answers depend only on the reports it gets.

    A resumed sweep reports the intermediate values of its trials again, in the same order, and gets the same
    answers. Hyperband computes a trial's bracket from `name`, the name of the search, and the trial's number.
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
        self._closed_numbers: set[int] = set()
        self._decisions: dict[tuple[int, int], bool] = {}

    def should_prune(self, number: int, epoch: int, score: float) -> bool:
        """Reports a value, and returns whether to prune the trial: never at a value that is not finite."""
        if (number, epoch) not in self._decisions:
            decided = False
            if math.isfinite(score):
                trial = self._get_trial(number)
                trial.report(score, epoch)
                decided = bool(trial.should_prune())  # MedianPruner returns a bool of numpy
            self._decisions[number, epoch] = decided
        return self._decisions[number, epoch]

    def tell(self, number: int, state: State, score: float | None) -> None:
        """Passes the end of a trial to Optuna; ignores an interrupted trial, since it can be resumed."""
        end = STATES[state]
        if number in self._closed_numbers or not end.is_finished():
            return
        self._closed_numbers.add(number)
        if end is TrialState.COMPLETE and (score is None or not math.isfinite(score)):
            end = TrialState.FAIL
        self._study.tell(self._get_trial(number), score if end is TrialState.COMPLETE else None, end)

    def _get_trial(self, number: int) -> optuna.Trial:
        # Numbers come in any order, and some never come: Optuna has trials without reports for these.
        while len(self._trials) <= number:
            self._trials.append(self._study.ask())
        return self._trials[number]


LEAST_TRIALS = 8
STEPS, FARTHEST = 200, 8.0
"""The number of points of the numerical integral, and its upper end in standard deviations above the mean."""


def least_trials(startup: int) -> int:
    """Returns the number of trials that must end before a search may stop early: at least twice `startup`."""
    return max(LEAST_TRIALS, 2 * startup)


def expected_gain(scores: Sequence[float], count: float) -> float:
    """Returns by how much the best of `count` more trials is expected to exceed the best of `scores`.

    Higher scores are better, and there are at least two. The n remaining trials are taken for independent
    draws from the normal distribution F with the mean and standard deviation of the scores. With the best
    score b, the gain is the integral of 1 - F(x)^n over x > b, the expected improvement of n draws
    (Ginsbourger and others 2010, section 2).

    Example:
        >>> round(expected_gain([0.5, 0.6, 0.7], 1), 3), round(expected_gain([0.5, 0.6, 0.7], 10), 3)
        (0.008, 0.059)
    """
    law, best = NormalDist(fmean(scores), stdev(scores)), max(scores)
    if law.stdev == 0:
        return 0.0
    x = np.linspace(best, max(best, law.mean + FARTHEST * law.stdev), STEPS)
    return float(np.trapezoid([1 - law.cdf(point) ** count for point in x.tolist()], x))


def stop_reason(
    scores: Sequence[float], ended_count: int, count_left: int, *, startup: int, margin: float, mode: str
) -> str:
    """Returns the reason why a search needs no more trials; an empty text if it needs more.

    A search stops if the expected gain of the `count_left` trials is below `margin`. The fraction of them
    that will complete, instead of being pruned, is estimated as the number of `scores`, which are those of
    complete trials, divided by `ended_count`, the number of complete and pruned trials. `startup` is the
    number of random trials at the start of the sampler.
    """
    if (
        ended_count < least_trials(startup)
        or len(scores) < LEAST_TRIALS
        or not all(map(math.isfinite, scores))
    ):
        return ""
    sign = 1 if mode == "max" else -1
    gain = expected_gain([sign * score for score in scores], count_left * len(scores) / ended_count)
    if gain >= margin:
        return ""
    return f"{count_left} more are expected to gain {gain:.2g}, less than evaluation.margin {margin:g}"


def stop_of(plan: SweepPlan, ledger: Ledger, scope: str) -> SearchStop | None:
    """Returns the early end of a search, if it is valid for this plan, else None.

    It is valid for the version of the space in which it happened, for plans that ask for no more trials than
    the plan of that time, and while `search.stop` of the space is set.
    """
    stop = ledger.stops.get(scope)
    if stop is None or plan.space.search.stop is None:
        return None
    same_version = stop.version == ledger.versions(scope)[-1].number
    return stop if same_version and plan.trials <= stop.asked else None
