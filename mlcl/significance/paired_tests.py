"""Paired tests: whether B is better than A, from runs of both with the same seeds.

They use the differences d_i = b_i - a_i of the n pairs, in which a seed's effect on both cancels out.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import stats

LEVEL = 0.95
"""The interval's confidence; tests have the level 1 - LEVEL."""
POWER = 0.8
"""The power of the test with as many seeds as `further_seeds` asks for."""
RESAMPLES = 10_000
FEW = 5
"""The fewest pairs for the bootstrap. With fewer, too many resamples repeat one pair."""
LEAST_ERROR = 0.3
"""The smallest standard error of a resample, as a share of the sample's. With few pairs many resamples nearly
repeat one pair; without this bound they would make the interval far too wide."""
SAME = 1e-9
"""Differences below this share of the largest figure count as equal: they come from rounding."""
MOST_SEEDS = 1_000

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Paired:
    """B against A over n pairs.

    `means` and `deviations` are of A and B (n - 1 in the denominator), `difference` and `deviation` of the
    differences. `interval` is the mean difference's, `method` how it was found: `bootstrap-t`, or `t` for
    fewer than five pairs, which assumes normal differences. `effect` is Hedges' g of the differences.
    `p` is the sign-flip test's, `wilcoxon` that of the signed ranks, `smallest_p` the smallest that n pairs
    can reach. A value is None where n is 1 or all differences are equal; the effect also where n is 2.
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
        """The number of further seeds that would decide, if the true effect is the found one; 0 if decided.

        The level is that of the strictest of `tests` tests under Holm's correction; `p` is the p that
        decides, by default the sign-flip test's. None: more than a thousand seeds, or there is no effect to
        compute with.
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
    """Compares paired scores, float64; the same `seed` gives the same interval.

    Sign-flip test: under the hypothesis that A and B do not differ, d_i and -d_i are equally likely; p is the
    share of the 2^n flips whose mean is as far from 0 (all of them up to 13 pairs, else 10,000 at random).
    Bootstrap-t: the interval [m - q_hi s, m - q_lo s], s = sd(d) / sqrt(n), with the quantiles q of
    (m* - m) / s* over resamples (Efron and Tibshirani, An Introduction to the Bootstrap, 1993, section 12.5),
    where s* is at least 0.3 s. With few pairs it keeps its level, which the percentiles of m* do not. Hedges'
    g: d_z = m / sd(d) times 1 - 3 / (4 n - 5), from three pairs on. Raises ValueError for lists of different
    lengths, empty ones, and values that are not finite.
    """
    x, y, steps = _pairs(a, b)
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
        p=_sign_flip(steps, seed),
        wilcoxon=_signed_ranks(np.round(steps), seed) if spread else None,
        smallest_p=smallest_p(n),
    )


def paired_p(a: Sequence[float], b: Sequence[float], *, seed: int = 0) -> float:
    """The sign-flip test's p alone, as `compare_paired` gives it. Raises ValueError as that does."""
    return _sign_flip(_pairs(a, b)[2], seed)


def smallest_p(n: int) -> float:
    """The smallest two-sided p of a sign-flip test, or of the signed ranks, over n pairs.

    2 / 2^n; where the flips are drawn at random, 2 / 10,001.
    """
    flips = 2**n
    return min(1.0, 2 / flips) if flips <= RESAMPLES else 2 / (RESAMPLES + 1)


def holm(p: Sequence[float]) -> list[float]:
    """Holm's adjusted p of several tests, in the order given: max over the smaller ones of (m - rank) p.

    S. Holm, A simple sequentially rejective multiple test procedure, Scandinavian Journal of Statistics 6,
    1979. Raises ValueError for what is no probability.
    """
    if any(not 0 <= each <= 1 for each in p):
        raise ValueError(f"not probabilities: {list(p)}")
    adjusted, running = [0.0] * len(p), 0.0
    for rank, index in enumerate(sorted(range(len(p)), key=lambda i: p[i])):
        running = max(running, min(1.0, (len(p) - rank) * p[index]))
        adjusted[index] = running
    return adjusted


def _deviation(x: Array) -> float | None:
    return float(x.std(ddof=1)) if x.size > 1 else None


def in_steps(values: Array, largest: float) -> Array:
    """The values in units of `SAME` of the largest: tests count ties, which rounding would break."""
    return values / (SAME * largest) if largest else values


def _pairs(a: Sequence[float], b: Sequence[float]) -> tuple[Array, Array, Array]:
    """Both as arrays, with their differences in steps. Raises ValueError for what are no pairs."""
    x, y = np.asarray(a, np.float64), np.asarray(b, np.float64)
    if x.shape != y.shape or x.ndim != 1 or not x.size:
        raise ValueError(f"needs pairs, got {x.shape} and {y.shape}")
    if not (np.isfinite(x).all() and np.isfinite(y).all()):
        raise ValueError("a figure is not finite")
    return x, y, in_steps(y - x, max(np.abs(x).max(), np.abs(y).max()))


def _interval(d: Array, spread: float, random: np.random.Generator) -> tuple[tuple[float, float] | None, str]:
    if not spread:
        return None, ""
    n, mean, error = d.size, float(d.mean()), spread / math.sqrt(d.size)
    if n < FEW:
        reach = float(stats.t.ppf((1 + LEVEL) / 2, n - 1)) * error
        return (mean - reach, mean + reach), "t"
    drawn = d[random.integers(n, size=(RESAMPLES, n))]
    errors = np.maximum(drawn.std(axis=1, ddof=1) / math.sqrt(n), LEAST_ERROR * error)
    tails = [(1 - LEVEL) / 2, (1 + LEVEL) / 2]
    low, high = np.quantile((drawn.mean(axis=1) - mean) / errors, tails)
    return (mean - float(high) * error, mean - float(low) * error), "bootstrap-t"


def _sign_flip(steps: Array, seed: int) -> float:
    if steps.size == 1:
        return 1.0

    def total(x: Array, axis: int) -> Any:
        return np.round(x.sum(axis=axis))

    found = stats.permutation_test(
        (steps,), total, permutation_type="samples", vectorized=True, n_resamples=RESAMPLES, rng=seed
    )
    return float(found.pvalue)


def _signed_ranks(steps: Array, seed: int) -> float:
    """The signed-rank test by sign flips, exact with ties and zeros. A zero has a rank and no sign."""
    whole = 2 * stats.rankdata(np.abs(steps))  # halves, where there are ties, would be rounded
    return _sign_flip(np.sign(steps) * whole, seed)


def _power(effect: float, n: int, risk: float) -> float:
    """The power of a two-sided paired t test of level `risk` if `effect` is the true one."""
    shift, limit = abs(effect) * math.sqrt(n), float(stats.t.ppf(1 - risk / 2, n - 1))
    return float(stats.nct.sf(limit, n - 1, shift) + stats.nct.cdf(-limit, n - 1, shift))
