"""Calibration of verdicts on two arms, by simulated searches: `python benchmarks/verdicts.py`.

Each corner is a combination of standard deviations in points: of the settings of a search, of the validation
rows, of the seeds (with one mode or two, 80 to 20), and of the test rows. In every experiment both arms are
searched: the best trials of each search are raced on two fresh seeds, and its pick is trained on fresh test
seeds. The heads' arm may contain the control: each of its searches tries the pick of the control's.
"""

from __future__ import annotations

import argparse
import itertools
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mlcl.significance.arm_errors import arm_error, half_width, rows_variance
from mlcl.significance.verdict import Arm, Outcome, compare_arms

Array = NDArray[np.float64]
RACE, RACE_SEEDS, BLOCKS, MARGIN = 4, 2, 50, 0.5
OWN_ROWS = 0.2
"""The most that the test rows change the difference of two settings of one arm, as a standard deviation."""


@dataclass(frozen=True)
class Corner:
    """Standard deviations in points; `rows` of a difference by all test rows."""

    settings: float
    validation: float
    seeds: float
    rows: float
    modes: bool


@dataclass(frozen=True)
class Budget:
    """Searches of an arm, trials of a search, fresh test seeds of a pick."""

    searches: int = 3
    trials: int = 8
    seeds: int = 2


@dataclass(frozen=True)
class Picks:
    """The true quality and the validation mean of each search's pick."""

    quality: Array
    validation: Array


def seed_noise(random: np.random.Generator, shape: tuple[int, ...], corner: Corner) -> Array:
    """Noise of trainings with standard deviation `corner.seeds`, with two modes where the corner has them."""
    noise = random.standard_normal(shape)
    if corner.modes:
        noise = 0.4 * noise + np.sqrt(1 - 0.16) * ((random.random(shape) < 0.2) - 0.2) / 0.4
    return np.asarray(noise * corner.seeds, np.float64)


def search(
    random: np.random.Generator, experiments: int, budget: Budget, corner: Corner, start: Picks | None = None
) -> Picks:
    """The picks [experiment, search]; each search also tries the setting of `start`."""
    shape = (experiments, budget.searches, budget.trials)
    quality = -random.gamma(2.0, 1.0, shape) / np.sqrt(2.0) * corner.settings
    validation = quality + random.normal(0, corner.validation, shape)
    if start is not None:
        quality[..., 0], validation[..., 0] = start.quality, start.validation
    score = validation + seed_noise(random, shape, corner)
    best = np.argsort(-score, -1)[..., : min(RACE, max(budget.trials // 2, 1))]
    raced = np.take_along_axis(validation, best, -1)
    again = raced + seed_noise(random, (*raced.shape, RACE_SEEDS), corner).mean(-1)
    pick = np.take_along_axis(best, again.argmax(-1)[..., None], -1)
    found, of_validation = (np.take_along_axis(its, pick, -1)[..., 0] for its in (quality, validation))
    return Picks(found, of_validation)


def experiments_of(
    random: np.random.Generator, count: int, budget: Budget, corner: Corner, effect: float, nested: bool
) -> tuple[Array, Array, Array]:
    """Test values of control and heads [experiment, search, seed], and the difference without each block."""
    control = search(random, count, budget, corner)
    heads = search(random, count, budget, corner, control if nested else None)
    shape = (count, budget.searches, budget.seeds)
    of_rows = random.normal(0, corner.rows * np.sqrt(BLOCKS), (count, BLOCKS))
    of_setting = min(OWN_ROWS, corner.rows) * np.sqrt(BLOCKS / 2)
    own = random.normal(0, of_setting, (2, count, budget.searches, BLOCKS))
    one = control.quality[..., None] + own[0].mean(-1)[..., None] + seed_noise(random, shape, corner)
    other = heads.quality[..., None] + own[1].mean(-1)[..., None] + seed_noise(random, shape, corner)
    other += effect + of_rows.mean(-1)[:, None, None]
    blocks = of_rows + (own[1] - own[0]).mean(1)
    difference = (other.mean((1, 2)) - one.mean((1, 2)))[:, None]
    return one, other, difference - (blocks - blocks.mean(-1, keepdims=True)) / (BLOCKS - 1)


def intervals(one: Array, other: Array, without: Array) -> tuple[Array, Array]:
    """Difference and half width of each experiment, as `compare_arms` finds them."""
    first, second = arm_error(one), arm_error(other)
    variances = np.stack([first.variance, second.variance, rows_variance(without)], -1)
    freedoms = np.stack([first.freedom, second.freedom, np.full(len(one), BLOCKS - 1.0)], -1)
    return second.mean - first.mean, half_width(variances, freedoms, 0.95)


def check(one: Array, other: Array, without: Array, difference: float, half: float) -> None:
    """Raises AssertionError unless `compare_arms` finds this interval."""
    zeros = (0.0,) * BLOCKS

    def arm(label: str, values: Array, blocks: tuple[float, ...]) -> Arm:
        return Arm(
            label, tuple(tuple(Outcome(k, y, blocks) for k, y in enumerate(s)) for s in values.tolist())
        )

    found = compare_arms(
        arm("control", one, zeros), arm("heads", other, tuple(without.tolist())),
        question="heads", metric="test/x", mode="max", margin=MARGIN,
    )  # fmt: skip
    assert found.interval is not None
    assert np.allclose(found.interval, (difference - half, difference + half))


def corners() -> list[Corner]:
    """All combinations of the measured standard deviations."""
    grid = itertools.product((0.2, 0.7, 2.0), (0.1, 0.5, 1.5), (0.1, 0.3), (0.1, 0.5, 1.0), (False, True))
    return [Corner(*each) for each in grid]


def main() -> None:
    """Prints, for each budget, the worst corners and the power."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--experiments", type=int, default=2_000)
    count = parser.parse_args().experiments
    random = np.random.default_rng(0)
    print(
        "S T K, nested | coverage, most helps, hurts | no difference at .55 | "
        "power at 1, 2 points: median, least"
    )
    for budget, nested in itertools.product((Budget(), Budget(2, 12, 3), Budget(6, 4, 1)), (False, True)):
        lines = []
        for corner in corners():
            made = experiments_of(random, count, budget, corner, 0.0, nested)
            d, half = intervals(*made)
            check(made[0][0], made[1][0], made[2][0], float(d[0]), float(half[0]))
            line = [(np.abs(d) <= half).mean(), (d > half).mean(), (d < -half).mean()]
            d, half = intervals(*experiments_of(random, count, budget, corner, 1.1 * MARGIN, False))
            line.append(((d - half >= -MARGIN) & (d + half <= MARGIN)).mean())
            for effect in (1.0, 2.0):
                d, half = intervals(*experiments_of(random, count // 4, budget, corner, effect, nested))
                line.append((d > half).mean())
            lines.append(line)
        x = np.array(lines)
        print(
            budget.searches, budget.trials, budget.seeds, f"{nested!s:6} |",
            f"{x[:, 0].min():.3f} to {x[:, 0].max():.3f}  {x[:, 1].max():.3f}  {x[:, 2].max():.3f} |",
            f"{x[:, 3].max():.3f} | {np.median(x[:, 4]):.2f} {x[:, 4].min():.2f}",
            f"{np.median(x[:, 5]):.2f} {x[:, 5].min():.2f}",
            flush=True,
        )  # fmt: skip


if __name__ == "__main__":
    main()
