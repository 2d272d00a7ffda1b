"""Tests of differences between arms whose searches or seeds share data, against loops of the equation."""

from __future__ import annotations

import math
import statistics

import numpy as np
import pytest
from scipy import stats

from mlcl.significance.arm_errors import OTHERS, shared_errors
from mlcl.significance.arms import Arm, Outcome, difference_of
from mlcl.significance.paired_arms import differences_of
from mlcl.significance.verdict import Conclusion, compare_family

RANDOM = np.random.default_rng(0)
SHARED = RANDOM.normal(size=3) * 0.03
ROWS = [0.5 + 0.01 * r + SHARED[:, None] + RANDOM.normal(size=(3, 2)) * 0.002 * (r + 1) for r in range(4)]
"""The values [search, seed] of four arms, all of which contain the same effect of the search."""


def arm(label, values, seeds=((1, 2), (1001, 1002), (2001, 2002))):
    return Arm(
        label,
        tuple(
            tuple(
                Outcome(seed, float(value), job=f"{label} {seed}") for seed, value in zip(*pair, strict=True)
            )
            for pair in zip(seeds, values, strict=True)
        ),
    )


ARMS = [arm(f"arm {r}", values) for r, values in enumerate(ROWS)]


def alone(label, values, seeds):
    return Arm(label, (tuple(map(Outcome, seeds, values)),))


def slow_errors(values):
    """Returns each arm's squared error by loops: its residual variance, mixed with that of the other arms."""
    arms, units = len(values), len(values[0])
    centre = statistics.fmean(statistics.fmean(row) for row in values)
    unit_means = [statistics.fmean(row[s] for row in values) for s in range(units)]
    variances = []
    for row in values:
        residuals = [row[s] - statistics.fmean(row) - unit_means[s] + centre for s in range(units)]
        variances.append(sum(e * e for e in residuals) / ((units - 1) * (1 - 1 / arms)))
    return [
        ((units - 1) * s2 + OTHERS * statistics.fmean(variances[:r] + variances[r + 1 :]))
        / (units - 1 + OTHERS)
        / units
        for r, s2 in enumerate(variances)
    ]


def test_errors_are_those_of_the_equation():
    values = [list(map(float, arm_rows.mean(1))) for arm_rows in ROWS]
    errors = shared_errors(np.array(values))
    assert errors.variance == pytest.approx(slow_errors(values))
    assert (errors.freedom, errors.most) == (3, 6)
    batch_errors = shared_errors(np.array([values, [row[::-1] for row in values]]))
    assert batch_errors.variance == pytest.approx(np.array([errors.variance] * 2))


def test_what_all_arms_share_is_no_part_of_the_error():
    values = RANDOM.normal(size=(5, 4))
    shifted_values = values + RANDOM.normal(size=4) * 100 + RANDOM.normal(size=(5, 1))
    assert shared_errors(shifted_values).variance == pytest.approx(shared_errors(values).variance)
    order = RANDOM.permutation(5)
    assert shared_errors(values[order]).variance == pytest.approx(shared_errors(values).variance[order])


def test_searches_of_one_number_are_paired_and_all_arms_tell_the_error():
    differences = differences_of(ARMS[0], ARMS[1:], "x", "max", searches=True)
    variance = slow_errors([list(map(float, arm_rows.mean(1))) for arm_rows in ROWS])
    for place, difference in enumerate(differences, start=1):
        first, second = variance[0], variance[place]
        freedom = min((first + second) ** 2 / ((first**2 + second**2) / 3), 6)
        half = float(stats.t.ppf(0.975, freedom)) * math.sqrt(first + second)
        value = ROWS[place].mean() - ROWS[0].mean()
        assert difference.value == pytest.approx(value)
        assert difference.interval(0.95) == pytest.approx((value - half, value + half))
        assert difference.paired == "search"
    unpaired_differences = differences_of(ARMS[0], ARMS[1:], "x", "max")
    assert unpaired_differences == [difference_of(ARMS[0], other_arm, "x", "max") for other_arm in ARMS[1:]]
    assert all(
        sum(difference.errors.arms) < sum(other.errors.arms)
        for difference, other in zip(differences, unpaired_differences, strict=True)
    )
    assert sum(differences[0].errors.seeds) <= sum(differences[0].errors.arms)


def test_two_arms_are_compared_by_paired_differences():
    (difference,) = differences_of(ARMS[0], ARMS[1:2], "x", "min", searches=True)
    steps = (ROWS[1].mean(1) - ROWS[0].mean(1)).tolist()
    half = float(stats.t.ppf(0.975, 2)) * statistics.stdev(steps) / math.sqrt(3)
    assert difference.interval(0.95) == pytest.approx((-np.mean(steps) - half, -np.mean(steps) + half))
    assert difference.p == pytest.approx(float(stats.ttest_1samp(steps, 0).pvalue))


def test_an_arm_that_lacks_a_search_is_paired_by_the_others():
    incomplete_arm = Arm("lacking", (ARMS[1].searches[0], (Outcome(1001, math.nan),), ARMS[1].searches[2]))
    whole, part = differences_of(ARMS[0], [ARMS[2], incomplete_arm], "x", "max", searches=True)
    assert whole == differences_of(ARMS[0], [ARMS[2]], "x", "max", searches=True)[0]
    other_arms = [
        Arm(paired_arm.label, (paired_arm.searches[0], paired_arm.searches[2]))
        for paired_arm in (ARMS[0], ARMS[1])
    ]
    expected = differences_of(other_arms[0], other_arms[1:], "x", "max", searches=True)[0]
    assert (part.value, part.errors) == (expected.value, expected.errors)
    single_arm = Arm("one", (ARMS[1].searches[0], (), ()))
    assert differences_of(ARMS[0], [single_arm], "x", "max", searches=True)[0].paired == ""


def test_fitted_and_equal_arms_and_those_of_other_searches_are_not_paired():
    fitted_arm = Arm("fitted", ((Outcome(0, 0.4),),), fitted=True)
    equal_arm, other = Arm("same", ARMS[0].searches), alone("other", (0.5, 0.6), (1, 2))
    differences = differences_of(
        ARMS[0], [fitted_arm, equal_arm, other, ARMS[1]], "x", "max", searches=True, seeds=True
    )
    assert [difference.paired for difference in differences] == ["", "", "", "search"]
    assert differences[1].same
    assert differences[3] == differences_of(ARMS[0], ARMS[1:2], "x", "max", searches=True)[0]


def test_pairs_of_one_search_are_subtracted_first():
    draws = (0.3, 0.5, 0.7, 0.9)
    reference = alone("a", draws, range(4))
    other = alone("b", [value + (0.01, 0.02)[k % 2] for k, value in enumerate(draws)], range(4))
    unpaired_verdict, paired_verdict = (
        compare_family(
            differences_of(reference, [other], "x", "max", seeds=seeds), "settings", metric="x", mode="max"
        )[0]
        for seeds in (False, True)
    )
    half = float(stats.t.ppf(0.975, 3)) * statistics.stdev([0.01, 0.02, 0.01, 0.02]) / 2

    assert paired_verdict.interval == pytest.approx((0.015 - half, 0.015 + half))
    assert (paired_verdict.answer, unpaired_verdict.answer) == (Conclusion.HELPS, Conclusion.CANNOT_TELL)
    assert paired_verdict.sentence.startswith("b is better than a: x 0.6150 against 0.6000")
    assert "outcomes of one seed were subtracted first" in paired_verdict.sentence


def test_pairs_leave_out_seeds_without_a_partner():
    reference = alone("a", [0.1 * k for k in (1, 2, 3, 4)], (1, 2, 3, 4))
    other = alone("b", [0.1 * k + 0.01 * k**2 for k in (5, 4, 3, 2)], (5, 4, 3, 2))
    (difference,) = differences_of(reference, [other], "x", "max", seeds=True)

    assert difference.paired == "seed"
    assert [outcome.seed for outcome in difference.arms[1].searches[0]] == [2, 3, 4]
    assert difference.value == pytest.approx((0.04 + 0.09 + 0.16) / 3)


def test_an_arm_without_a_value_is_refused():
    with pytest.raises(ValueError, match="lost has no finite x"):
        differences_of(ARMS[0], [alone("lost", [math.nan], [0])], "x", "max", searches=True)
