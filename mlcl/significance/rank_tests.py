"""Tests of methods over data sets: average ranks, the Friedman, Nemenyi and Bayesian signed-rank tests.

J. Demsar, Statistical comparisons of classifiers over multiple data sets, JMLR 7, 2006.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import count

import numpy as np
from numpy.typing import ArrayLike
from scipy import stats

from mlcl.significance.paired_tests import LEVEL, in_steps

LEAST = 3
"""The smallest number of methods, and of data sets, for the Friedman test."""
DRAWS = 50_000
"""The number of draws from the posterior of the Bayesian signed-rank test."""
PRIOR = 0.5
"""The weight of the Bayesian test's prior: a difference of 0 that counts as half a data set."""


@dataclass(frozen=True)
class RankTest:
    """The average `ranks` of k methods over n data sets, with tests of whether the methods differ.

    The best method on a data set has rank 1; equal ones share the mean of their ranks. `chi2` and `p` are of
    the Friedman test, `f` and `f_p` those of Iman and Davenport's F, which is less conservative:
    F = (n - 1) chi2 / (n (k - 1) - chi2), with k - 1 and (k - 1)(n - 1) degrees of freedom; infinite where
    the ranks are equal on all data sets. `critical_difference` is Nemenyi's at 0.05.
    """

    n: int
    ranks: tuple[float, ...]
    chi2: float
    p: float
    f: float
    f_p: float
    critical_difference: float

    def differ(self, a: int, b: int) -> bool:
        """Whether the average ranks of two methods are at least the critical difference apart."""
        return abs(self.ranks[a] - self.ranks[b]) >= self.critical_difference

    @property
    def groups(self) -> list[tuple[int, ...]]:
        """The maximal sets of at least two methods of which no two differ, ordered by rank."""
        order = sorted(range(len(self.ranks)), key=lambda method: self.ranks[method])
        groups: list[tuple[int, ...]] = []
        for start, first in enumerate(order):
            group = tuple(method for method in order[start:] if not self.differ(first, method))
            if len(group) > 1 and not (groups and set(group) <= set(groups[-1])):
                groups.append(group)
        return groups

    def data_sets_to_differ(self, a: int, b: int) -> int | None:
        """Returns the number of data sets with which these average ranks would differ; None for equal ranks.

        From CD = q sqrt(k (k + 1) / (6 n)): n = q^2 k (k + 1) / (6 (R_a - R_b)^2), rounded up; or the first
        larger n with which F is significant, too (chi2 grows with n if the average ranks stay equal).
        """
        distance = abs(self.ranks[a] - self.ranks[b])
        if not distance:
            return None
        n_needed = max(LEAST, math.ceil(self.n * (self.critical_difference / distance) ** 2 - 1e-9))
        k = len(self.ranks)
        return next(
            n for n in count(n_needed) if iman_davenport(self.chi2 * n / self.n, k, n)[1] <= 1 - LEVEL
        )


def rank_test(figures: ArrayLike, *, higher: bool) -> RankTest:
    """Ranks k methods over n data sets and tests whether they differ.

    `figures` (k, n) float64 has a row for each method and a column for each data set; with `higher`, larger
    values are better. Raises ValueError for fewer than three methods or data sets, and for values that are
    not finite.
    """
    values = np.asarray(figures, np.float64)
    if values.ndim != 2 or min(values.shape) < LEAST:
        raise ValueError(f"needs {LEAST} methods and {LEAST} data sets, got {values.shape}")
    if not np.isfinite(values).all():
        raise ValueError("a figure is not finite")
    k, n = values.shape
    steps = np.round(in_steps(values, float(np.abs(values).max())))
    ranks = stats.rankdata(-steps if higher else steps, axis=0)
    if not np.ptp(ranks):
        chi2, p = 0.0, 1.0  # if all ranks are equal, scipy divides by zero
    else:
        chi2, p = map(float, stats.friedmanchisquare(*ranks))
    means = tuple(map(float, ranks.mean(axis=1)))
    return RankTest(n, means, chi2, p, *iman_davenport(chi2, k, n), critical_difference(k, n))


def iman_davenport(chi2: float, k: int, n: int) -> tuple[float, float]:
    """Returns F and its p-value (see `RankTest`) from Friedman's chi2 of k methods over n data sets."""
    denominator = n * (k - 1) - chi2
    f = (n - 1) * chi2 / denominator if denominator > 1e-9 * n * k else math.inf
    return f, float(stats.f.sf(f, k - 1, (k - 1) * (n - 1)))


def critical_difference(k: int, n: int, level: float = 1 - LEVEL) -> float:
    """Returns Nemenyi's critical difference of the average ranks of k methods over n data sets.

    It is q sqrt(k (k + 1) / (6 n)), where q is the quantile of the studentized range divided by sqrt(2).
    """
    q = float(stats.studentized_range.ppf(1 - level, k, np.inf)) / math.sqrt(2)
    return q * math.sqrt(k * (k + 1) / (6 * n))


def bayesian_signed_rank(d: ArrayLike, rope: float) -> tuple[float, float, float]:
    """Returns the probabilities that differences are below -`rope`, within +-`rope` of 0, and above `rope`.

    With z_0 = 0 of weight 1/2 beside the differences z_1 ... z_n and w ~ Dirichlet(1/2, 1, ..., 1):
    theta = sum_ij w_i w_j [z_i + z_j < -2 rope], [|z_i + z_j| <= 2 rope], [z_i + z_j > 2 rope]; a probability
    is the fraction of 50,000 draws of w in which its theta is the largest; a tie counts for each in equal
    parts (Benavoli, Corani, Demsar, Zaffalon, Time for a change, JMLR 18, 2017, section 4.2). `d` has the n
    differences, float64 (n,). Raises ValueError if it is empty or not finite, and for a negative `rope`.
    """
    values = np.asarray(d, np.float64)
    if values.ndim != 1 or not values.size or not np.isfinite(values).all() or not rope >= 0:
        raise ValueError(f"needs finite differences and a rope of at least 0, got {d!r} and {rope}")
    z = np.concatenate([[0.0], values])
    sums = np.add.outer(z, z)
    weights = np.random.default_rng(0).dirichlet([PRIOR, *np.ones(values.size)], DRAWS)
    above, below = (np.einsum("si,ij,sj->s", weights, region, weights, optimize=True)
                    for region in (sums > 2 * rope, sums < -2 * rope))  # fmt: skip
    theta = np.stack([below, 1 - below - above, above])
    largest = np.isclose(theta, theta.max(axis=0), rtol=0, atol=1e-12)
    below_p, within_p, above_p = map(float, (largest / largest.sum(axis=0)).mean(axis=1))
    return below_p, within_p, above_p
