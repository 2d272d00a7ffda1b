"""Stops a search early if its remaining trials are expected to gain less than the margin of verdicts."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import NormalDist, fmean, stdev

import numpy as np

from mlcl.service.engine.entries import SearchStop
from mlcl.service.engine.ledger import Ledger
from mlcl.service.search.sweep_plan import SweepPlan

LEAST_TRIALS = 8
STEPS, FARTHEST = 200, 8.0
"""The number of points of the numerical integral, and its upper end in standard deviations above the mean."""


def least_trials(startup: int) -> int:
    """Returns the number of trials before which no search stops early: twice its random ones, or more."""
    return max(LEAST_TRIALS, 2 * startup)


def expected_gain(scores: Sequence[float], remaining: float) -> float:
    """Returns by how much the best of the remaining trials is expected to be better than the best so far.

    The remaining trials are taken for independent draws from the normal distribution F with the mean and
    standard deviation of the scores, at least two, more is better. With n of them and the best score b the
    gain is the integral of 1 - F(x)^n over x > b, the expected improvement of n draws (Ginsbourger and others
    2010, section 2).

    Example:
        >>> round(expected_gain([0.5, 0.6, 0.7], 1), 3), round(expected_gain([0.5, 0.6, 0.7], 10), 3)
        (0.008, 0.059)
    """
    law, best = NormalDist(fmean(scores), stdev(scores)), max(scores)
    if law.stdev == 0:
        return 0.0
    x = np.linspace(best, max(best, law.mean + FARTHEST * law.stdev), STEPS)
    return float(np.trapezoid([1 - law.cdf(each) ** remaining for each in x.tolist()], x))


def stop_reason(
    scores: Sequence[float], ended: int, remaining: int, *, startup: int, margin: float, mode: str
) -> str:
    """Returns the reason why a search needs no more trials; an empty text if it needs more.

    It stops if the expected gain is below `margin`. The fraction of the `remaining` trials that will
    complete, instead of being pruned, is estimated from the `ended` ones. `scores` are those of complete
    trials, `startup` is the number of random trials at the start of the sampler.
    """
    if ended < least_trials(startup) or len(scores) < LEAST_TRIALS or not all(map(math.isfinite, scores)):
        return ""
    sign = 1 if mode == "max" else -1
    gain = expected_gain([sign * score for score in scores], remaining * len(scores) / ended)
    if gain >= margin:
        return ""
    return f"{remaining} more are expected to gain {gain:.2g}, less than evaluation.margin {margin:g}"


def stop_of(plan: SweepPlan, ledger: Ledger, scope: str) -> SearchStop | None:
    """Returns the early end of a search, if it holds for this plan.

    It holds for the version of the space in which it happened, for plans that ask for no more trials than the
    plan of that time, and while `search.stop` of the space is set.
    """
    stop = ledger.stops.get(scope)
    if stop is None or plan.space.search.stop is None:
        return None
    same = stop.version == ledger.versions(scope)[-1].number
    return stop if same and plan.trials <= stop.asked else None
