"""The arms of a comparison, and the difference of two arms with its variances.

An arm is a model or baseline with its searches; each search picks a setting, which is trained on several
fresh seeds. The variance of a difference comes from searches, seeds and test rows.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np
import scipy

from mlcl.significance.arm_errors import (
    SEARCH_DEVIATION,
    ArmError,
    Array,
    arm_error,
    half_width,
    pooled_freedom,
    rows_variance,
)
from mlcl.significance.deciders import Errors
from mlcl.significance.roles import is_share

Pairing = Literal["", "seed", "search"]
ROUNDING = 1e-9
"""The largest standard error, as a fraction of the larger mean, that counts as rounding, that is as 0."""


def search_deviation(metric: str) -> float:
    """Returns the standard deviation that is assumed for the outcome of a single search.

    It is `SEARCH_DEVIATION` for shares, and NaN for other metrics, whose deviation is not known.
    """
    return SEARCH_DEVIATION if is_share(metric) else math.nan


@dataclass(frozen=True)
class Outcome:
    """The result of one training: its seed and the `value` of the test metric.

    `blocks` has the metric with one block of test rows left out at a time (jackknife), `job` is the hash of
    the training's job; both are empty if unknown.
    """

    seed: int
    value: float
    blocks: tuple[float, ...] = ()
    job: str = ""


@dataclass(frozen=True)
class Arm:
    """The trainings of an arm on fresh seeds; `searches` has the outcomes of the setting that each picked.

    A `fitted` arm is a deterministic baseline: each search has one outcome, and several searches differ only
    in their validation rows. With one search it has no variance from searches and seeds. `searched` says
    whether a search chose the arm's settings; `label` is the arm's name. If the arm stands for more than the
    setting of its only search, `search_deviation` is the standard deviation of a search's outcome; arms with
    several searches do not need it.
    """

    label: str
    searches: tuple[tuple[Outcome, ...], ...]
    fitted: bool = False
    searched: bool = True
    search_deviation: float = 0.0

    @property
    def assumed_deviation(self) -> float:
        """`search_deviation` if the arm is searched, not fitted, and has one complete search; else 0."""
        single_search = self.searched and not self.fitted and len(self.complete) == 1
        return self.search_deviation if single_search else 0.0

    @property
    def error(self) -> ArmError:
        """The mean of the arm and its variance from searches and seeds."""
        return arm_error(outcome_values(self), self.assumed_deviation)

    @property
    def complete(self) -> tuple[tuple[Outcome, ...], ...]:
        """The searches that have finite outcomes, with only these; failed trainings have none."""
        finite_searches = (
            tuple(outcome for outcome in search if math.isfinite(outcome.value)) for search in self.searches
        )
        return tuple(search for search in finite_searches if search)


@dataclass(frozen=True)
class ArmSummary:
    """An arm's label, the mean of its metric, and how many searches and trainings it has."""

    label: str
    mean: float
    searches: int
    trainings: int


@dataclass(frozen=True)
class Difference:
    """The difference of a reference arm and a treated arm, positive where the treated one is better.

    `means` are the means of the metric, `value` is their difference, negated if smaller metric values are
    better, and `errors` has its variances. `same` says whether both arms consist of the same trainings.
    `paired` is `seed` or `search` if outcomes of equal seeds or equal search numbers were subtracted first,
    else empty.
    """

    arms: tuple[Arm, Arm]
    value: float
    means: tuple[float, float]
    errors: Errors
    same: bool
    paired: Pairing

    @property
    def is_known(self) -> bool:
        """Whether the standard error of the difference is known; it is 0 where both arms are the same."""
        total = sum(self.errors.arms) + self.errors.rows
        rounding = (ROUNDING * max(map(abs, self.means))) ** 2
        return self.same or (math.isfinite(total) and total > rounding)

    @cached_property
    def p(self) -> float | None:
        """The two-sided p-value of the t test with the error of `interval`; None without a standard error."""
        if not self.is_known:
            return None
        variances, freedoms = self.errors.arrays()
        if self.value == 0:
            return 1.0
        error = math.sqrt(variances.sum())
        return float(2 * scipy.special.stdtr(pooled_freedom(variances, freedoms), -abs(self.value) / error))

    def interval(self, level: float) -> tuple[float, float] | None:
        """Returns the confidence interval (low, high) of `value`; None without a standard error."""
        if not self.is_known:
            return None
        half = float(half_width(*self.errors.arrays(), level))
        return self.value - half, self.value + half

    @property
    def summaries(self) -> tuple[ArmSummary, ArmSummary]:
        """The summaries of the reference and the treated arm."""
        first, second = (
            ArmSummary(arm.label, mean, len(arm.complete), sum(map(len, arm.complete)))
            for arm, mean in zip(self.arms, self.means, strict=True)
        )
        return first, second

    @property
    def seeds(self) -> int:
        """The smallest number of trainings of a search that has several; else 1, or 0 if both are fitted."""
        counts = [len(search) for arm in self.arms if not arm.fitted for search in arm.complete]
        return min((count for count in counts if count > 1), default=min(counts, default=0))


def difference_of(reference: Arm, treated: Arm, metric: str, mode: str) -> Difference:
    """Returns the difference of two arms whose searches and seeds are independent of each other.

    `metric` is for error messages, `mode` is max or min. Raises ValueError where an arm has no finite value.
    """
    check_values((reference, treated), metric)
    arms, same = (reference, treated), are_same(reference, treated)
    exact = [same or (arm.fitted and len(arm.complete) == 1) for arm in arms]
    error_terms = [
        (0.0, 1.0, 0.0) if is_exact else arm.error[1:] for arm, is_exact in zip(arms, exact, strict=True)
    ]
    variances, freedom, seeds = (tuple(map(float, part)) for part in zip(*error_terms, strict=True))
    rows, blocks = (0.0, 0) if same else row_variance(arms)
    return build_difference(arms, Errors(variances, seeds, freedom, rows, blocks), mode, same=same)


def are_same(first: Arm, second: Arm) -> bool:
    """Whether two arms have equal outcomes of the same jobs; False if a job is unknown."""
    jobs_known = all(outcome.job for search in first.searches for outcome in search)
    return jobs_known and first.searches == second.searches


def check_values(arms: Sequence[Arm], metric: str) -> None:
    """Raises ValueError where an arm has no finite value."""
    for arm in arms:
        if not arm.complete:
            raise ValueError(f"{arm.label} has no finite {metric}")


def build_difference(
    arms: tuple[Arm, Arm], errors: Errors, mode: str, *, same: bool = False, paired: Pairing = ""
) -> Difference:
    """Returns the difference of two arms with these errors; its value is 0 if `same`."""
    first, second = (float(arm.error.mean) for arm in arms)
    value = 0.0 if same else (second - first) * (-1 if mode == "min" else 1)
    return Difference(arms, value, (first, second), errors, same, paired)


def outcome_values(arm: Arm) -> Array:
    """Returns the metric as (searches, seeds) float64, padded with NaN where a search has fewer seeds."""
    n_seeds = max(map(len, arm.searches))
    values = np.full((len(arm.searches), n_seeds), np.nan)
    for row, search in zip(values, arm.searches, strict=True):
        row[: len(search)] = [outcome.value for outcome in search]
    return values


def row_variance(arms: Sequence[Arm]) -> tuple[float, int]:
    """Returns the part of a variance that comes from test rows, and the number of blocks.

    It is the variance of the difference of two arms, or of the mean of one. Both are 0 where the trainings do
    not all have finite values for the same number of blocks.
    """
    lengths = {len(outcome.blocks) for arm in arms for search in arm.complete for outcome in search}
    if len(lengths) != 1 or min(lengths) < 2:
        return 0.0, 0
    *reference, treated = (
        np.mean([np.mean([outcome.blocks for outcome in search], 0) for search in arm.complete], 0)
        for arm in arms
    )
    difference = treated - sum(reference)
    return (float(rows_variance(difference)), lengths.pop()) if np.isfinite(difference).all() else (0.0, 0)


def mean_interval(arm: Arm, level: float) -> tuple[float, tuple[float, float] | None]:
    """Returns the mean of an arm's metric, and its confidence interval over seeds and test rows.

    With several searches the interval counts their variance, too. It is None where the variance is not known,
    as for a single training. Raises ValueError where the arm has no finite value.
    """
    check_values((arm,), "value")
    error, (rows, blocks) = arm.error, row_variance((arm,))
    variances = np.array([float(error.variance), rows])
    if not (np.isfinite(variances).all() and variances.sum() > 0):
        return float(error.mean), None
    half = float(half_width(variances, np.array([float(error.freedom), blocks - 1.0]), level))
    return float(error.mean), (float(error.mean) - half, float(error.mean) + half)
