"""Measures how often the intervals of `compare_paired` and of a percentile bootstrap contain the true effect.

    python benchmarks/paired.py [--experiments 1000]

Pairs have a true difference of 0.3 and noise of three kinds; both intervals claim 95 %. It also counts how
often the sign-flip test and the rank test find an effect at 5 % if there is none.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from mlcl.significance.paired_tests import LEVEL, RESAMPLES, compare_paired

EFFECT = 0.3
Noise = Callable[[np.random.Generator, int], NDArray[np.float64]]
NOISES: dict[str, Noise] = {
    "normal": lambda random, n: random.normal(size=n),
    "uniform": lambda random, n: random.uniform(-1, 1, size=n),
    "exponential": lambda random, n: random.exponential(size=n) - 1,
}


def percentile(d: NDArray[np.float64], random: np.random.Generator) -> tuple[float, float]:
    """Returns the interval of the peer: quantiles of the means of resamples."""
    means = d[random.integers(d.size, size=(RESAMPLES, d.size))].mean(axis=1)
    low, high = np.quantile(means, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return float(low), float(high)


def measure(noise: Noise, n: int, experiments: int) -> tuple[float, float, float, float]:
    """Returns the shares of our and the peer's intervals with the effect, and both tests' error rates."""
    random = np.random.default_rng(n)
    counts = np.zeros(4)
    for number in range(experiments):
        a = random.normal(size=n)
        d = noise(random, n)
        comparison = compare_paired(a, a + EFFECT + d, seed=number)
        null_comparison = compare_paired(a, a + d, seed=number)
        assert comparison.interval is not None
        intervals = (comparison.interval, percentile(EFFECT + d, random))
        counts[:2] += [low <= EFFECT <= high for low, high in intervals]
        counts[2:] += [null_comparison.p <= 1 - LEVEL, (null_comparison.wilcoxon or 1.0) <= 1 - LEVEL]
    return tuple(counts / experiments)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--experiments", type=int, default=1000)
    experiments = parser.parse_args().experiments
    print(f"{'noise':12} {'pairs':>5} {'ours':>6} {'percentile':>10} {'sign-flip':>9} {'ranks':>6}")
    for name, noise in NOISES.items():
        for n in (5, 6, 8, 12):
            ours, theirs, flips, ranks = measure(noise, n, experiments)
            print(f"{name:12} {n:5} {ours:6.3f} {theirs:10.3f} {flips:9.3f} {ranks:6.3f}", flush=True)


if __name__ == "__main__":
    main()
