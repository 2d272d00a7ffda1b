"""Measures the error rates of the tests over data sets if no method differs, and their power if one does.

    python benchmarks/ranks.py [--tables 1000]

Simulates tables of k methods on n data sets with different scales. Level: all methods are equal. Power: one
method is better than the others by one standard deviation of the noise. `chi2` is Friedman's test, `F` that
of Iman and Davenport. The other columns count the tables in which any pair (`Nemenyi`), or the control and
any method, differ; for the power, only the control and the better method count. `Wilcoxon` uses Holm's
correction. `Bayes` counts a probability of 0.95 of being practically better or worse.
"""

from __future__ import annotations

import argparse
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from mlcl.significance.method_comparison import compare_methods
from mlcl.significance.paired_tests import LEVEL

ROPE = 0.1
NAMES = ("chi2", "F", "Nemenyi", "Wilcoxon", "Bayes")


def simulated(random: np.random.Generator, k: int, n: int, effect: float) -> NDArray[np.float64]:
    """Returns figures of k methods on n data sets; the last method is better by `effect`."""
    noise = random.standard_t(4, size=(k, n)) / np.sqrt(2)
    noise[-1] += effect
    return noise * random.uniform(0.5, 2, size=n) + random.normal(60, 10, size=n)


def findings(figures: NDArray[np.float64], *, level: bool) -> list[bool]:
    """Returns the results of the tests on a table, in the order of `NAMES`."""
    k, n = figures.shape
    methods, data_sets = [f"m{i}" for i in range(k)], [f"d{j}" for j in range(n)]
    cells = {(methods[i], data_sets[j]): {0: float(figures[i, j])} for i in range(k) for j in range(n)}
    comparison = compare_methods("x", cells, methods, data_sets, higher=True, control="m0", rope=ROPE)
    assert comparison is not None
    pairs = list(combinations(range(k), 2)) if level else [(0, k - 1)]
    comparisons = comparison.against if level else comparison.against[-1:]
    return [
        comparison.test.p <= 1 - LEVEL,
        comparison.test.f_p <= 1 - LEVEL,
        comparison.test.f_p <= 1 - LEVEL and any(comparison.test.differ(*pair) for pair in pairs),
        any(pair_comparison.decided for pair_comparison in comparisons),
        any(
            max(pair_comparison.bayes[0], pair_comparison.bayes[2]) >= LEVEL
            for pair_comparison in comparisons
            if pair_comparison.bayes
        ),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tables", type=int, default=1000)
    tables = parser.parse_args().tables
    print(f"{'':6} {'methods':>7} {'sets':>4}" + "".join(f"{name:>9}" for name in NAMES))
    for name, effect in (("level", 0.0), ("power", 1.0)):
        for k in (4, 12):
            for n in (3, 6, 10, 15):
                random = np.random.default_rng(1000 * k + n)
                table_figures = (simulated(random, k, n, effect) for _ in range(tables))
                shares = np.mean([findings(figures, level=not effect) for figures in table_figures], axis=0)
                print(f"{name:6} {k:7} {n:4}" + "".join(f"{share:9.3f}" for share in shares), flush=True)


if __name__ == "__main__":
    main()
