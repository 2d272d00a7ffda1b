"""Paired tests of whether B is better than A, from runs of both with the same seeds.

They use the differences d_i = b_i - a_i of the n pairs, in which the common effect of a seed cancels out.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy

from mlcl.significance.arm_errors import Array

LEVEL = 0.95
"""The confidence level of intervals; tests have the significance level 1 - LEVEL."""
POWER = 0.8
"""The power that the test shall have with the number of seeds that `further_seeds` returns."""
RESAMPLES = 10_000
FEW = 5
"""The smallest number of pairs for the bootstrap. With fewer, too many resamples repeat one pair."""
LEAST_ERROR = 0.3
"""The lower bound on a resample's standard error, as a fraction of the sample's. With few pairs, many
resamples nearly repeat one pair; without this bound they would make the interval far too wide."""
SAME = 1e-9
"""The size, as a fraction of the largest value, below which a difference counts as rounding, that is as 0."""
MOST_SEEDS = 1_000


@dataclass(frozen=True)
class Paired:
    """The comparison of B with A over n pairs.

    Attributes:
        n: The number of pairs.
        means: The means of A and B.
        deviations: The sample standard deviations of A and B (n - 1 in the denominator), None for n = 1.
        difference: The mean of the differences B - A.
        deviation: The sample standard deviation of the differences, None for n = 1.
        interval: The confidence interval of the mean difference, None for n = 1 or if all differences are
            equal.
        method: The interval's method: `bootstrap-t`, or `t` for fewer than five pairs, which assumes normal
            differences; empty without an interval.
        effect: Hedges' g of the differences, None for n < 3 or if all differences are equal.
        p: The two-sided p-value of the sign-flip test.
        wilcoxon: The p-value of the exact signed-rank test, None for n = 1 or if all differences are equal.
        smallest_p: The smallest p-value that n pairs can reach.
    """

    n: int
    means: tuple[float, float]
    deviations: tuple[float | None, float | None]
    difference: float
    deviation: float | None
    interval: tuple[float, float] | None
    method: str
    effect: float | None
    p: float
    wilcoxon: float | None
    smallest_p: float

    def further_seeds(self, tests: int = 1, p: float | None = None) -> int | None:
        """Returns the number of further seeds with which the test would reach the power `POWER`.

        The true effect is taken to be `effect`. The level is that of the strictest of `tests` tests under
        Holm's correction. Returns 0 if `p`, by default the p-value of the sign-flip test, is significant at
        this level, and None if there is no effect or more than a thousand seeds in all are needed.
        """
        risk = (1 - LEVEL) / tests
        if (self.p if p is None else p) <= risk:
            return 0
        if not self.effect:
            return None
        for n in range(self.n + 1, MOST_SEEDS + 1):
            if smallest_p(n) <= risk and _power(self.effect, n, risk) >= POWER:
                return n - self.n
        return None


def compare_paired(a: Sequence[float], b: Sequence[float], *, seed: int = 0) -> Paired:
    """Compares paired scores of A and B, float64 (n,); `seed` makes resampling deterministic.

    Sign-flip test: under the hypothesis that A and B do not differ, d_i and -d_i are equally likely; p is the
    fraction of the 2^n flips whose mean is as far from 0 (all of them up to 13 pairs, else 10,000 at random).
    Bootstrap-t: the interval [m - q_hi s, m - q_lo s], s = sd(d) / sqrt(n), with the quantiles q of
    (m* - m) / s* over resamples (Efron and Tibshirani, An Introduction to the Bootstrap, 1993, section 12.5),
    where s* is at least 0.3 s. With few pairs it keeps its level, which the percentiles of m* do not. Hedges'
    g: d_z = m / sd(d) times 1 - 3 / (4 n - 5), from three pairs on. Raises ValueError for lists that are
    empty or of different lengths, and for values that are not finite.
    """
    x, y, steps = _check_pairs(a, b)
    d = y - x
    n, mean = d.size, float(d.mean())
    spread = float(d.std(ddof=1)) if np.ptp(np.round(steps)) else 0.0
    interval, method = _interval(d, spread, np.random.default_rng(seed))
    return Paired(
        n=n,
        means=(float(x.mean()), float(y.mean())),
        deviations=(_deviation(x), _deviation(y)),
        difference=mean,
        deviation=_deviation(d),
        interval=interval,
        method=method,
        effect=mean / spread * (1 - 3 / (4 * n - 5)) if spread and n > 2 else None,
        p=_sign_flip_p(steps, seed),
        wilcoxon=_signed_rank_p(np.round(steps), seed) if spread else None,
        smallest_p=smallest_p(n),
    )


def smallest_p(n: int) -> float:
    """Returns the smallest two-sided p-value that a sign-flip or signed-rank test over n pairs can give.

    It is 2 / 2^n, or 2 / 10,001 where the flips are drawn at random.
    """
    flips = 2**n
    return min(1.0, 2 / flips) if flips <= RESAMPLES else 2 / (RESAMPLES + 1)


def holm(p: Sequence[float]) -> list[float]:
    """Returns Holm's adjusted p-values of m tests, in the order given.

    The adjusted value is the maximum of (m - rank) p over this and all smaller p-values, with ranks from 0,
    and at most 1 (S. Holm, A simple sequentially rejective multiple test procedure, Scandinavian Journal of
    Statistics 6, 1979). Raises ValueError for a value outside of [0, 1].
    """
    if any(not 0 <= value <= 1 for value in p):
        raise ValueError(f"not probabilities: {list(p)}")
    adjusted, running_max = [0.0] * len(p), 0.0
    for rank, index in enumerate(sorted(range(len(p)), key=lambda i: p[i])):
        running_max = max(running_max, min(1.0, (len(p) - rank) * p[index]))
        adjusted[index] = running_max
    return adjusted


def _deviation(x: Array) -> float | None:
    return float(x.std(ddof=1)) if x.size > 1 else None


def in_steps(values: Array, largest: float) -> Array:
    """Returns values / (SAME * largest), to be rounded to integers; unchanged if `largest` is 0.

    Values that differ only by rounding errors then round to one integer, and so count as ties.
    """
    return values / (SAME * largest) if largest else values


def _check_pairs(a: Sequence[float], b: Sequence[float]) -> tuple[Array, Array, Array]:
    """Returns arrays of both lists, and b - a in units of `in_steps`. Raises as `compare_paired` does."""
    x, y = np.asarray(a, np.float64), np.asarray(b, np.float64)
    if x.shape != y.shape or x.ndim != 1 or not x.size:
        raise ValueError(f"needs pairs, got {x.shape} and {y.shape}")
    if not (np.isfinite(x).all() and np.isfinite(y).all()):
        raise ValueError("a figure is not finite")
    return x, y, in_steps(y - x, max(np.abs(x).max(), np.abs(y).max()))


def _interval(d: Array, spread: float, rng: np.random.Generator) -> tuple[tuple[float, float] | None, str]:
    if not spread:
        return None, ""
    n, mean, error = d.size, float(d.mean()), spread / math.sqrt(d.size)
    if n < FEW:
        half_width = float(scipy.stats.t.ppf((1 + LEVEL) / 2, n - 1)) * error
        return (mean - half_width, mean + half_width), "t"
    resamples = d[rng.integers(n, size=(RESAMPLES, n))]
    errors = np.maximum(resamples.std(axis=1, ddof=1) / math.sqrt(n), LEAST_ERROR * error)
    tails = [(1 - LEVEL) / 2, (1 + LEVEL) / 2]
    low, high = np.quantile((resamples.mean(axis=1) - mean) / errors, tails)
    return (mean - float(high) * error, mean - float(low) * error), "bootstrap-t"


def _sign_flip_p(steps: Array, seed: int) -> float:
    if steps.size == 1:
        return 1.0

    def total(x: Array, axis: int) -> Any:
        return np.round(x.sum(axis=axis))

    result = scipy.stats.permutation_test(
        (steps,), total, permutation_type="samples", vectorized=True, n_resamples=RESAMPLES, rng=seed
    )
    return float(result.pvalue)


def _signed_rank_p(steps: Array, seed: int) -> float:
    """Returns the p-value of the signed-rank test, from sign flips; zeros are ranked, but have no sign."""
    doubled_ranks = 2 * scipy.stats.rankdata(np.abs(steps))  # ties have half ranks, which would be rounded
    return _sign_flip_p(np.sign(steps) * doubled_ranks, seed)


def _power(effect: float, n: int, risk: float) -> float:
    """Returns the power of a two-sided paired t test over n pairs at level `risk` for the true `effect`.

    It is at most the probability that all differences have the effect's sign, where a sign-flip test over n
    pairs is significant in no other case.
    """
    shift, limit = abs(effect) * math.sqrt(n), float(scipy.stats.t.ppf(1 - risk / 2, n - 1))
    power = float(scipy.stats.nct.sf(limit, n - 1, shift) + scipy.stats.nct.cdf(-limit, n - 1, shift))
    only_unanimous = 2 * smallest_p(n) > risk
    return min(power, float(scipy.stats.norm.cdf(abs(effect))) ** n) if only_unanimous else power
