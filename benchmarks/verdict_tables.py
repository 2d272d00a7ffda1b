"""Measures how often a table gives false verdicts and finds true effects, with three error estimates.

    python benchmarks/verdict_tables.py [--experiments 10000]

A table has a control and other rows, with a few searches each. Searches with the same number share an effect
(their training and validation rows). The searches of each row also scatter with the row's own standard
deviation, in points. `alone` treats the two rows of a comparison as independent (Welch). `one error` takes
one variance for all rows after removing the effects of search numbers (randomised blocks). `ours` is the
error of `mlcl.significance.paired_arms`. Printed for each, after Holm's correction: the share of tables with
a false verdict if no row differs, and the share that finds the one row that is 2 points better.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from mlcl.significance.arm_errors import arm_error, pooled_freedom, shared_errors
from mlcl.significance.arms import Arm, Outcome
from mlcl.significance.paired_arms import differences_of

Array = NDArray[np.float64]
EFFECT, RISK = 2.0, 0.05
SHAPES = ((9, 3), (5, 3), (3, 3), (9, 6), (9, 2))
"""Pairs of the number of rows, including the control, and the number of searches."""
SCENES: dict[str, tuple[float, Callable[[int], list[float]]]] = {
    "all .4, shared 1.5": (1.5, lambda rows: [0.4] * rows),
    "all .8, shared 1.5": (1.5, lambda rows: [0.8] * rows),
    "all .5, shared 0": (0.0, lambda rows: [0.5] * rows),
    "all .6, shared 3": (3.0, lambda rows: [0.6] * rows),
    "evenly .25 to 1.25": (1.0, lambda rows: [*np.geomspace(0.25, 1.25, rows)]),
    "one row twice .4": (1.0, lambda rows: [0.4] * (rows - 1) + [0.8]),
    "control twice .4": (1.0, lambda rows: [0.8] + [0.4] * (rows - 1)),
    "one row four times .3": (1.0, lambda rows: [0.3] * (rows - 1) + [1.2]),
    "control four times .3": (1.0, lambda rows: [1.2] + [0.3] * (rows - 1)),
}
"""The standard deviation that searches of one number share, and that of each row's searches."""


def draw(random: np.random.Generator, count: int, shape: tuple[int, int], scene: str, effect: float) -> Array:
    """Returns values [experiment, row, search]; the second row is better by `effect`."""
    rows, searches = shape
    shared_deviation, deviations_of = SCENES[scene]
    values = random.normal(size=(count, 1, searches)) * shared_deviation
    values = values + random.normal(size=(count, rows, searches)) * np.array(deviations_of(rows))[:, None]
    values[:, 1] += effect
    return values


def p_values(values: Array) -> dict[str, Array]:
    """Returns the p-value of each row against the first [experiment, row], by error estimate."""
    rows, searches = values.shape[-2:]
    means = values.mean(-1)
    difference = np.abs(means[:, 1:] - means[:, :1])

    def p(variance: Array, freedom: Array, max_freedom: float = np.inf) -> Array:
        pair_variances = np.stack(np.broadcast_arrays(variance[:, :1], variance[:, 1:]), -1)
        freedoms = np.minimum(
            pooled_freedom(pair_variances, np.broadcast_to(freedom, pair_variances.shape)), max_freedom
        )
        return np.asarray(2 * stats.t.sf(difference / np.sqrt(pair_variances.sum(-1)), freedoms))

    own_errors, common_errors = arm_error(values[..., None]), shared_errors(values)
    residual = values - means[..., None] - values.mean(1, keepdims=True) + values.mean((1, 2), keepdims=True)
    pooled_variance = (residual**2).sum((1, 2)) / common_errors.most / searches
    return {
        "alone": p(own_errors.variance, np.array(searches - 1.0)),
        "one error": p(np.repeat(pooled_variance[:, None], rows, 1), np.array(np.inf), common_errors.most),
        "ours": p(common_errors.variance, np.array(common_errors.freedom), common_errors.most),
    }


def holm_rejects(p: Array) -> Array:
    """Returns whether Holm's procedure rejects each p, experiment by experiment."""
    order = p.argsort(1)
    is_below = np.take_along_axis(p, order, 1) <= RISK / np.arange(p.shape[1], 0, -1)
    rejections = np.zeros(p.shape, bool)
    np.put_along_axis(rejections, order, np.logical_and.accumulate(is_below, 1), 1)
    return rejections


def same_as_the_product(values: Array, p: Array) -> None:
    """Raises AssertionError unless `differences_of` finds these p-values for one table."""
    arms = [
        Arm(str(number), tuple((Outcome(0, float(value)),) for value in searches))
        for number, searches in enumerate(values)
    ]
    differences = differences_of(arms[0], arms[1:], "x", "max", searches=True)
    assert np.allclose([difference.p or 0.0 for difference in differences], p)


def measure(random: np.random.Generator, count: int, shape: tuple[int, int], scene: str) -> dict[str, str]:
    """Returns the share of false verdicts and of found effects by error estimate, as text."""
    null_p, better_p = (p_values(draw(random, count, shape, scene, effect)) for effect in (0.0, EFFECT))
    return {
        name: f"{holm_rejects(p).any(1).mean():.3f} {holm_rejects(better_p[name])[:, 0].mean():.2f}"
        for name, p in null_p.items()
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--experiments", type=int, default=10_000, help="of each line")
    count = parser.parse_args().experiments
    random = np.random.default_rng(0)
    print(f"{count:,} tables a line; false, and found at {EFFECT:g} points")
    for shape in SHAPES:
        print(f"{shape[0]} rows, {shape[1]} searches")
        values = draw(random, 1, shape, next(iter(SCENES)), 0.0)
        same_as_the_product(values[0], p_values(values)["ours"][0])
        for scene in SCENES:
            shares = measure(random, count, shape, scene)
            print(f"  {scene:22} " + "   ".join(f"{name} {text}" for name, text in shares.items()))


if __name__ == "__main__":
    main()
