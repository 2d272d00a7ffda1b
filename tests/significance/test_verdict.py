"""Tests of verdicts on two arms against loops written from the equations."""

from __future__ import annotations

import math
import random
import statistics
from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from mlcl.significance.arm_errors import SEARCH_DEVIATION, arm_error, half_width, rows_variance
from mlcl.significance.arms import Arm, Outcome, difference_of, search_deviation
from mlcl.significance.deciders import Decider, cheapest_decider
from mlcl.significance.paired_arms import differences_of
from mlcl.significance.paired_tests import holm
from mlcl.significance.verdict import Conclusion, Verdict, compare_arms, compare_family

PAIR = (("a", 0.7), ("b", 0.8))


def arm(label: str, mean: float, spread: float, searches: int = 3, seeds: int = 2, blocks: int = 20) -> Arm:
    rng = random.Random(label)
    return Arm(
        label,
        tuple(
            tuple(
                Outcome(10 * s + k, value := rng.gauss(mean, spread),
                        tuple(value + rng.gauss(0, 1e-4) for _ in range(blocks)), f"{label}{s}{k}")
                for k in range(seeds)
            )
            for s in range(searches)
        ),
    )  # fmt: skip


def compare(reference: Arm, treated: Arm, mode: str = "max") -> Verdict:
    return compare_arms(
        reference, treated, question="heads", metric="test/accuracy", mode=mode, margin=0.005, rows=400
    )


def slow_interval(reference: Arm, treated: Arm) -> tuple[float, float]:
    """Returns the interval of the difference, computed by loops in float64."""
    parts, means, block_means = [], [], []
    for tested_arm in (reference, treated):
        search_means = [
            statistics.fmean(outcome.value for outcome in search) for search in tested_arm.searches
        ]
        means.append(statistics.fmean(search_means))
        count = len(search_means)
        parts.append((statistics.variance(search_means) / count, count - 1))
        block_means.append(
            [
                statistics.fmean(
                    statistics.fmean(outcome.blocks[b] for outcome in search)
                    for search in tested_arm.searches
                )
                for b in range(len(tested_arm.searches[0][0].blocks))
            ]
        )
    block_differences = [b - a for a, b in zip(*block_means, strict=True)]
    blocks = len(block_differences)
    centre = statistics.fmean(block_differences)
    parts.append(((blocks - 1) / blocks * sum((d - centre) ** 2 for d in block_differences), blocks - 1))
    total = sum(v for v, _ in parts)
    freedom = total**2 / sum(v**2 / df for v, df in parts)
    half = float(stats.t.ppf(0.975, freedom)) * math.sqrt(total)
    return means[1] - means[0] - half, means[1] - means[0] + half


@pytest.mark.parametrize(("searches", "seeds"), [(2, 1), (3, 2), (5, 4)])
def test_the_interval_is_that_of_the_equations(searches: int, seeds: int) -> None:
    first, second = (arm(name, 0.5, 0.01, searches, seeds) for name in ("a", "b"))

    assert compare(first, second).interval == pytest.approx(slow_interval(first, second), abs=1e-12)


def test_order_of_searches_seeds_and_blocks_does_not_matter() -> None:
    first, second = arm("a", 0.5, 0.01), arm("b", 0.52, 0.01)

    def turned(original: Arm) -> Arm:
        return Arm(
            original.label,
            tuple(
                tuple(Outcome(outcome.seed, outcome.value, outcome.blocks[::-1]) for outcome in search[::-1])
                for search in original.searches[::-1]
            ),
        )

    assert compare(turned(first), turned(second)).interval == pytest.approx(compare(first, second).interval)


def test_exchanged_arms_change_the_sign_alone() -> None:
    first, second = arm("a", 0.5, 0.01), arm("b", 0.55, 0.01)
    forward, backward = compare(first, second), compare(second, first)

    assert forward.interval is not None
    assert backward.interval is not None
    assert forward.interval == pytest.approx((-backward.interval[1], -backward.interval[0]))
    assert (forward.answer, backward.answer) == (Conclusion.HELPS, Conclusion.HURTS)
    assert compare(first, second, mode="min").interval == pytest.approx(backward.interval)


def test_a_small_interval_within_the_margin_makes_no_difference() -> None:
    verdict = compare(arm("a", 0.5, 1e-4), arm("b", 0.501, 1e-4))

    assert verdict.answer is Conclusion.NO_DIFFERENCE
    assert verdict.sentence.startswith("The heads make no difference: test/accuracy 0.5")
    assert "within 0.005" in verdict.sentence


def test_shares_of_one_search_are_seeds_and_rows() -> None:
    verdict = compare(arm("a", 0.5, 0.01, 1, 6), arm("b", 0.5, 0.01, 1, 6))

    assert verdict.shares["searches"] == 0
    assert sum(verdict.shares.values()) == pytest.approx(1)
    assert "it speaks of the settings of one search (a, b)" in verdict.sentence


def test_rows_that_forbid_a_decision_are_named() -> None:
    def fitted(label: str, value: float, step: float) -> Arm:
        blocks = tuple(value + step * (-1) ** b for b in range(20))
        return Arm(label, ((Outcome(0, value, blocks),),), fitted=True)

    verdict = compare(fitted("a", 0.5, 0.0), fitted("b", 0.51, 0.002))
    half = float(stats.t.ppf(0.975, 19)) * math.sqrt(19 / 20 * 20 * 0.002**2)

    assert verdict.answer is Conclusion.CANNOT_TELL
    assert verdict.shares["rows"] == 1
    assert verdict.interval == pytest.approx((0.01 - half, 0.01 + half))
    assert verdict.decider is not None
    assert verdict.decider.what == "rows"
    assert verdict.decider.about == 1400  # 400 (half / 0.01)^2 = 1,332, rounded up to two digits
    assert 400 * (half / 0.01) ** 2 == pytest.approx(1332, abs=1)
    assert "more trainings cannot decide this, about" in verdict.sentence


def test_equal_trainings_have_no_difference_and_one_training_alone_no_interval() -> None:
    reference = arm("a", 0.5, 0.01)
    x, y = [Arm(name, ((Outcome(0, value),),)) for name, value in (("x", 0.5), ("y", 0.9))]

    assert compare(reference, reference).interval == (0, 0)
    assert compare(reference, reference).answer is Conclusion.NO_DIFFERENCE
    assert compare(x, y).interval is None
    assert compare(x, y).answer is Conclusion.CANNOT_TELL


def test_equal_values_of_different_trainings_tell_nothing() -> None:
    def trained(*jobs: str) -> Arm:
        return Arm("b", (tuple(Outcome(seed, 0.0, (0.0, 0.0), job) for seed, job in enumerate(jobs)),))

    reference = trained("x", "y")
    for other in (trained("x", "z"), trained("v", "w"), trained("", "")):
        verdict = compare(reference, other)
        assert (verdict.answer, verdict.interval, verdict.decider) == (Conclusion.CANNOT_TELL, None, None)
        assert "same trainings" not in verdict.sentence
    assert compare(trained("", ""), trained("", "")).interval is None, "whose jobs are not known"
    assert "both are the same trainings" in compare(reference, trained("x", "y")).sentence


@pytest.mark.parametrize("deviation", [0.0, 0.01, 0.1])
def test_one_search_has_the_deviation_that_searches_are_taken_to_have(deviation: float) -> None:
    first, second = (arm(name, 0.5, 0.01, searches=1, seeds=4) for name in ("a", "b"))
    verdict = compare(first, replace(second, search_deviation=deviation))
    seeds = [
        statistics.variance([outcome.value for outcome in side.searches[0]]) / 4 for side in (first, second)
    ]
    block_differences = [
        statistics.fmean(b.blocks[k] for b in second.searches[0])
        - statistics.fmean(a.blocks[k] for a in first.searches[0])
        for k in range(20)
    ]
    rows = 19 / 20 * sum((value - statistics.fmean(block_differences)) ** 2 for value in block_differences)
    total = sum(seeds) + rows + deviation**2
    freedom = total**2 / (sum(v**2 / 3 for v in seeds) + rows**2 / 19)
    half = float(stats.t.ppf(0.975, freedom)) * math.sqrt(total)
    assert verdict.interval == pytest.approx(
        (verdict.difference - half, verdict.difference + half), abs=1e-12
    )
    assert verdict.search_deviation == deviation
    assert ("is taken to vary" in verdict.sentence) == (deviation > 0)
    assert verdict.shares["searches"] == pytest.approx(deviation**2 / total)


def test_a_fitted_baseline_has_the_error_of_its_validation_rows_where_they_were_drawn_again() -> None:
    model = arm("a", 0.5, 0.01)
    values = (0.45, 0.47, 0.49)
    draws = Arm("svm", tuple((Outcome(1, value),) for value in values), fitted=True, searched=False)
    single_draw = replace(draws, searches=draws.searches[:1])
    difference, single_difference = (
        difference_of(baseline, model, "x", "max") for baseline in (draws, single_draw)
    )
    assert difference.errors.arms == pytest.approx((0.02**2 / 3, float(model.error.variance)))
    assert single_difference.errors.arms == pytest.approx((0.0, float(model.error.variance)))
    assert (difference.seeds, single_difference.seeds) == (2, 2)


def test_an_assumed_deviation_is_for_one_search_of_an_arm_that_was_searched() -> None:
    for tested_arm in (arm("a", 0.5, 0.01), replace(arm("a", 0.5, 0.01, searches=1), searched=False)):
        assert replace(tested_arm, search_deviation=SEARCH_DEVIATION).assumed_deviation == 0.0
    single_search = replace(arm("a", 0.5, 0.01, searches=1), search_deviation=SEARCH_DEVIATION)
    assert single_search.assumed_deviation == SEARCH_DEVIATION
    assert compare(single_search, single_search).search_deviation == 0.0


def test_failed_trainings_are_left_out() -> None:
    first, second = arm("a", 0.5, 0.01), arm("b", 0.52, 0.01)
    failed_arm = Arm(first.label, (*first.searches, (Outcome(99, math.nan),)))

    assert compare(failed_arm, second).interval == compare(first, second).interval
    with pytest.raises(ValueError, match="a has no finite test/accuracy"):
        compare(Arm("a", ((Outcome(1, math.nan),),)), second)


def test_rows_without_blocks_are_said_not_to_count() -> None:
    verdict = compare(arm("a", 0.5, 0.01, blocks=0), arm("b", 0.5, 0.01))

    assert not verdict.rows_counted
    assert "the error of the test rows is not counted" in verdict.sentence


def test_many_experiments_at_once_are_those_of_each() -> None:
    values = np.random.default_rng(0).normal(size=(7, 3, 4))
    values[2, 1, 3] = np.nan
    errors = arm_error(values)

    for index, experiment in enumerate(values):
        assert [part[index] for part in errors] == pytest.approx(list(map(float, arm_error(experiment))))
    assert rows_variance(values[0]).shape == (3,)
    assert half_width(np.ones((5, 2)), np.full((5, 2), 4.0), 0.95) == pytest.approx(
        np.full(5, float(stats.t.ppf(0.975, 8)) * math.sqrt(2))
    )


def test_p_agrees_with_the_interval() -> None:
    difference = difference_of(arm("a", 0.5, 0.01), arm("b", 0.51, 0.01), "x", "max")
    assert difference.p is not None
    low, high = difference.interval(1 - difference.p) or (math.nan, math.nan)

    assert min(abs(low), abs(high)) == pytest.approx(0, abs=1e-9)


@pytest.mark.parametrize("means", [(0.55, 0.53, 0.5), (0.55, 0.515, 0.514, 0.512), (0.5, 0.501), (0.9, 0.8)])
def test_a_family_is_decided_where_holm_decides(means: tuple[float, ...]) -> None:
    reference = arm("reference", 0.5, 0.004)
    pairs = [
        difference_of(reference, arm(f"arm {k}", mean, 0.004), "x", "max") for k, mean in enumerate(means)
    ]
    verdicts = compare_family(pairs, "settings", metric="x", mode="max", margin=0)
    adjusted_p = holm([pair.p or 0.0 for pair in pairs])

    assert [verdict.answer is not Conclusion.CANNOT_TELL for verdict in verdicts] == [
        p <= 0.05 for p in adjusted_p
    ]
    assert {verdict.tests for verdict in verdicts} == {len(means)}
    assert all(f"corrected for {len(means)} comparisons" in verdict.sentence for verdict in verdicts)


def test_differences_without_an_error_are_no_part_of_a_family() -> None:
    single_arms = [Arm(name, ((Outcome(0, value),),)) for name, value in (("x", 0.5), ("y", 0.9))]
    pairs = [
        difference_of(single_arms[0], single_arms[1], "x", "max"),
        difference_of(arm("a", 0.5, 0.01), arm("b", 0.6, 0.01), "x", "max"),
    ]
    unknown_verdict, decided_verdict = compare_family(pairs, "settings", metric="x", mode="max")

    assert (unknown_verdict.answer, unknown_verdict.interval) == (Conclusion.CANNOT_TELL, None)
    assert (decided_verdict.answer, decided_verdict.level, decided_verdict.tests) == (
        Conclusion.HELPS,
        0.95,
        1,
    )


def test_seeds_that_would_decide_are_counted_from_the_larger_arm() -> None:
    small_arm, large_arm = (
        arm("few", 0.5, 0.01, searches=1, seeds=3),
        arm("many", 0.503, 0.01, searches=1, seeds=12),
    )
    verdict = compare(small_arm, large_arm)
    difference = difference_of(small_arm, large_arm, "test/accuracy", "max")
    assert difference.seeds == 3
    target = max(abs(difference.value), 0.005 - abs(difference.value))
    arguments = {"target": target, "searches": 1, "seeds": 3, "rows": 400, "level": verdict.level}
    decider = cheapest_decider(difference.errors, trainings=3, **arguments)
    assert decider is not None
    assert decider.about is not None
    assert verdict.decider == Decider("seeds", 4 * decider.about, 400, False)


@pytest.mark.parametrize(
    ("reference", "treated", "seeds"),
    [((0.3, 0.4), (0.32, 0.41), 4), ((0.2, 0.3), (0.32, 0.31), 9), ((0.7, 0.72), (0.73, 0.75), 4)],
)
def test_more_seeds_add_degrees_of_freedom_to_the_variance_of_one_search(
    reference: tuple[float, ...], treated: tuple[float, ...], seeds: int
) -> None:
    """Tests that the seeds needed are those of a t test, which is paired in the first two cases."""
    first = 0 if treated != (0.73, 0.75) else 5
    arms = [
        Arm(label, (tuple(Outcome(start + k, value) for k, value in enumerate(values)),), searched=False)
        for label, values, start in (("a", reference, 0), ("b", treated, first))
    ]
    (difference,) = differences_of(arms[0], arms[1:], "x", "max", seeds=first == 0)
    pairs = np.subtract(treated, reference) if first == 0 else None
    spread = np.std(pairs, ddof=1) if pairs is not None else math.sqrt(2) * np.std(reference, ddof=1)
    degrees = (lambda n: n - 1) if first == 0 else (lambda n: 2 * (n - 1))
    needed_count = next(
        n for n in range(3, 200) if stats.t.ppf(0.975, degrees(n)) * spread / math.sqrt(n) <= difference.value
    )
    verdict = compare_family([difference], "settings", metric="x", mode="max", margin=0.0)[0]
    assert verdict.decider is not None
    assert (verdict.decider.what, verdict.decider.about, needed_count) == ("seeds", seeds, seeds)


@pytest.mark.parametrize("count", [2, 3, 6, 7])
def test_equal_values_of_every_seed_have_no_error_however_their_mean_is_rounded(count: int) -> None:
    arms = [Arm(label, (tuple(Outcome(k, value) for k in range(count)),)) for label, value in PAIR]
    difference = difference_of(*arms, "x", "max")
    assert (difference.is_known, difference.p, difference.interval(0.95)) == (False, None, None)


def test_the_error_of_a_search_is_assumed_for_shares_alone() -> None:
    shares = ("test/micro_f1", "knn_best/test/ranking_loss", "val/accuracy_price", "test/my_metric")
    assert {search_deviation(name) for name in shares} == {SEARCH_DEVIATION}
    other_metrics = (
        "test/coverage_error",
        "val/loss",
        "time/train_seconds",
        "knn_best/k",
        "test/lca_distance",
    )
    assert all(math.isnan(search_deviation(name)) for name in other_metrics)
    arms = [replace(arm(label, mean, 0.01, searches=1), search_deviation=math.nan) for label, mean in PAIR]
    verdict = compare(*arms)
    assert (verdict.answer, verdict.interval, verdict.search_deviation) == (Conclusion.CANNOT_TELL, None, 0.0)
    assert "its error is not known" in verdict.sentence
