"""Measures how often verdicts on two arms are false and find true effects, by simulated searches.

    python benchmarks/verdicts.py [--experiments 1000] [--corners]

A corner is a combination of standard deviations in points (settings .2, .7, 2; validation rows .1, .5, 1.5;
seeds .1, .3, with one mode or with two, 80 to 20) and of 250, 1,000 or 10,000 test rows. Each line is the
worst and the median of the 108 corners for a design: the number of searches, trials and seeds, and whether
the heads' searches begin at the control's picks (nested). The peer is one search of equal cost whose trials
are resampled.
"""

from __future__ import annotations

import argparse
import itertools

import numpy as np
from verdict_searches import (
    BLOCKS,
    Array,
    Corner,
    Design,
    Made,
    independent_searches,
    resampled_search,
    simulate,
    without_blocks,
)

from mlcl.significance.arm_errors import SEARCH_DEVIATION
from mlcl.significance.arms import Arm, Outcome
from mlcl.significance.verdict import compare_arms

MARGIN, RISK = 0.5, 0.05
HELD = 0.93, 0.97
EFFECTS = 0.5, 1.0, 2.0, 3.0
DESIGNS = (Design(), Design(2, 12, 3), Design(6, 4, 1), Design(1, 24, 3, 6), Design(1, 24, 6, 3))
ONE_SEARCH = (Design(1, 2, 3), Design(1, 4, 3), Design(1, 24, 6))
"""Designs with one search, whose error is assumed to be `SEARCH_DEVIATION`."""


def intervals(simulation: Made, design: Design) -> tuple[Array, Array]:
    """Returns difference and half width of each experiment by the design's method."""
    return (
        resampled_search(simulation, design.trials) if design.candidates else independent_searches(simulation)
    )


def same_as_the_product(simulation: Made, difference: float, half_width: float) -> None:
    """Raises AssertionError unless `compare_arms` finds this interval for the first experiment."""
    own_part = simulation.own[1].mean(1) - simulation.own[0].mean(1)
    jackknife_values = without_blocks(np.array([difference]), (simulation.common + own_part)[:1])[0]

    def arm(label: str, values: Array, blocks: Array) -> Arm:
        block_values = tuple(float(block) for block in blocks)
        searches = tuple(
            tuple(Outcome(k, y, block_values) for k, y in enumerate(search)) for search in values.tolist()
        )
        return Arm(label, searches, search_deviation=100 * SEARCH_DEVIATION)

    verdict = compare_arms(
        arm("control", simulation.control[0], np.zeros(BLOCKS)),
        arm("heads", simulation.heads[0], jackknife_values),
        question="heads", metric="test/x", mode="max", margin=MARGIN,
    )  # fmt: skip
    assert verdict.interval is not None
    assert np.allclose(verdict.interval, (difference - half_width, difference + half_width))


def measure(random: np.random.Generator, count: int, design: Design, corner: Corner, nested: bool) -> Array:
    """Returns the shares of intervals with the effect, false verdicts, and found effects by effect."""
    simulation = simulate(random, count, design, corner, 0.0, nested)
    difference, half_width = intervals(simulation, design)
    if not design.candidates:
        same_as_the_product(simulation, float(difference[0]), float(half_width[0]))
    low, high = difference - half_width, difference + half_width
    decided = (low < -MARGIN) | (high > MARGIN)
    figures = [((low <= 0) & (high >= 0)).mean(), (decided & (low > 0)).mean(), (decided & (high < 0)).mean()]
    null_shares = []
    for effect in (1.1 * MARGIN, -1.1 * MARGIN):
        difference, half_width = intervals(simulate(random, count, design, corner, effect, nested), design)
        null_shares.append(
            ((difference - half_width >= -MARGIN) & (difference + half_width <= MARGIN)).mean()
        )
    figures.append(max(null_shares))
    for effect in EFFECTS:
        difference, half_width = intervals(
            simulate(random, count // 4, design, corner, effect, nested), design
        )
        figures.append(((difference > half_width) & (difference + half_width > MARGIN)).mean())
    return np.array(figures)


def corners() -> list[Corner]:
    """Returns all combinations of the corners' values."""
    grid = itertools.product(
        (0.2, 0.7, 2.0), (0.1, 0.5, 1.5), (0.1, 0.3), (250, 1_000, 10_000), (False, True)
    )
    return [Corner(*values) for values in grid]


def line(design: Design, nested: bool, x: Array, count: int) -> str:
    """Returns the worst and the median corner of a design as a line of text."""
    name = f"{design.searches} x {design.trials}, "
    name += f"best {design.candidates} x {design.seeds}" if design.candidates else f"{design.seeds} seeds"
    false_shares = x[:, 1] + x[:, 2]
    bound = RISK + 2 * np.sqrt(RISK * (1 - RISK) / count)
    coverage = (
        f"{x[:, 0].min():.3f} {x[:, 0].max():.3f} {(x[:, 0] < HELD[0]).sum():3} {(x[:, 0] > HELD[1]).sum():3}"
    )
    errors = (
        f"{false_shares.max():.3f} {(false_shares > bound).sum():3} {x[:, 1].max():.3f} {x[:, 2].max():.3f}"
    )
    power = "  ".join(f"{np.median(shares):.2f} {shares.min():.2f}" for shares in x[:, 4:].T)
    label = f"{name:17} {design.trainings:3} {'nested' if nested else '':6}"
    return f"{label} | {coverage} | {errors} | {x[:, 3].max():.3f} | {power}"


def positive(text: str) -> int:
    """Returns a number of experiments, at least 4. Raises ValueError for a smaller one."""
    if int(text) < 4:
        raise ValueError(text)
    return int(text)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--experiments", type=positive, default=1_000, help="of each corner and design")
    parser.add_argument("--corners", action="store_true", help="print each corner, too")
    args = parser.parse_args()
    random = np.random.default_rng(0)
    print(
        f"""{args.experiments:,} experiments of each of {len(corners())} corners. Columns:
searches x trials, fresh seeds; trainings of an arm
| the interval holds: in the least and in the most; corners below .93, above .97
| falsely helps or hurts: in the most; corners above .05 by two standard errors; most helps, most hurts
| falsely makes no difference, at 1.1 margins: in the most
| found, at {", ".join(f"{effect:g}" for effect in EFFECTS)} points: median corner, least"""
    )
    for design, nested in itertools.product((*DESIGNS, *ONE_SEARCH), (False, True)):
        x = np.array([measure(random, args.experiments, design, corner, nested) for corner in corners()])
        if args.corners:
            for corner, figures in zip(corners(), x, strict=True):
                print("   ", corner, " ".join(f"{figure:.3f}" for figure in figures))
        print(line(design, nested, x, args.experiments), flush=True)


if __name__ == "__main__":
    main()
