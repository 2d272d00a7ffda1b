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
    drawn = random.Random(label)
    return Arm(
        label,
        tuple(
            tuple(
                Outcome(10 * s + k, value := drawn.gauss(mean, spread),
                        tuple(value + drawn.gauss(0, 1e-4) for _ in range(blocks)), f"{label}{s}{k}")
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
    parts, means, without = [], [], []
    for tested in (reference, treated):
        of_searches = [statistics.fmean(its.value for its in search) for search in tested.searches]
        means.append(statistics.fmean(of_searches))
        count = len(of_searches)
        parts.append((statistics.variance(of_searches) / count, count - 1))
        without.append(
            [
                statistics.fmean(
                    statistics.fmean(its.blocks[b] for its in search) for search in tested.searches
                )
                for b in range(len(tested.searches[0][0].blocks))
            ]
        )
    of_blocks = [b - a for a, b in zip(*without, strict=True)]
    blocks = len(of_blocks)
    centre = statistics.fmean(of_blocks)
    parts.append(((blocks - 1) / blocks * sum((d - centre) ** 2 for d in of_blocks), blocks - 1))
    total = sum(v for v, _ in parts)
    freedom = total**2 / sum(v**2 / df for v, df in parts)
    half = float(stats.t.ppf(0.975, freedom)) * math.sqrt(total)
    return means[1] - means[0] - half, means[1] - means[0] + half


@pytest.mark.parametrize(("searches", "seeds"), [(2, 1), (3, 2), (5, 4)])
def test_the_interval_is_that_of_the_equations(searches: int, seeds: int) -> None:
    one, other = (arm(name, 0.5, 0.01, searches, seeds) for name in ("a", "b"))

    assert compare(one, other).interval == pytest.approx(slow_interval(one, other), abs=1e-12)


def test_order_of_searches_seeds_and_blocks_does_not_matter() -> None:
    one, other = arm("a", 0.5, 0.01), arm("b", 0.52, 0.01)

    def turned(each: Arm) -> Arm:
        return Arm(
            each.label,
            tuple(
                tuple(Outcome(its.seed, its.value, its.blocks[::-1]) for its in search[::-1])
                for search in each.searches[::-1]
            ),
        )

    assert compare(turned(one), turned(other)).interval == pytest.approx(compare(one, other).interval)


def test_exchanged_arms_change_the_sign_alone() -> None:
    one, other = arm("a", 0.5, 0.01), arm("b", 0.55, 0.01)
    there, back = compare(one, other), compare(other, one)

    assert there.interval is not None
    assert back.interval is not None
    assert there.interval == pytest.approx((-back.interval[1], -back.interval[0]))
    assert (there.answer, back.answer) == (Conclusion.HELPS, Conclusion.HURTS)
    assert compare(one, other, mode="min").interval == pytest.approx(back.interval)


def test_a_small_interval_within_the_margin_makes_no_difference() -> None:
    found = compare(arm("a", 0.5, 1e-4), arm("b", 0.501, 1e-4))

    assert found.answer is Conclusion.NO_DIFFERENCE
    assert found.sentence.startswith("The heads make no difference: test/accuracy 0.5")
    assert "within 0.005" in found.sentence


def test_shares_of_one_search_are_seeds_and_rows() -> None:
    found = compare(arm("a", 0.5, 0.01, 1, 6), arm("b", 0.5, 0.01, 1, 6))

    assert found.shares["searches"] == 0
    assert sum(found.shares.values()) == pytest.approx(1)
    assert "it speaks of the settings of one search (a, b)" in found.sentence


def test_rows_that_forbid_a_decision_are_named() -> None:
    def fitted(label: str, value: float, step: float) -> Arm:
        blocks = tuple(value + step * (-1) ** b for b in range(20))
        return Arm(label, ((Outcome(0, value, blocks),),), fitted=True)

    found = compare(fitted("a", 0.5, 0.0), fitted("b", 0.51, 0.002))
    half = float(stats.t.ppf(0.975, 19)) * math.sqrt(19 / 20 * 20 * 0.002**2)

    assert found.answer is Conclusion.CANNOT_TELL
    assert found.shares["rows"] == 1
    assert found.interval == pytest.approx((0.01 - half, 0.01 + half))
    assert found.decider is not None
    assert found.decider.what == "rows"
    assert found.decider.about == 1400  # 400 (half / 0.01)^2 = 1,332, rounded up to two digits
    assert 400 * (half / 0.01) ** 2 == pytest.approx(1332, abs=1)
    assert "more trainings cannot decide this, about" in found.sentence


def test_equal_trainings_have_no_difference_and_one_training_alone_no_interval() -> None:
    one = arm("a", 0.5, 0.01)
    x, y = [Arm(name, ((Outcome(0, value),),)) for name, value in (("x", 0.5), ("y", 0.9))]

    assert compare(one, one).interval == (0, 0)
    assert compare(one, one).answer is Conclusion.NO_DIFFERENCE
    assert compare(x, y).interval is None
    assert compare(x, y).answer is Conclusion.CANNOT_TELL


def test_equal_values_of_different_trainings_tell_nothing() -> None:
    def trained(*jobs: str) -> Arm:
        return Arm("b", (tuple(Outcome(seed, 0.0, (0.0, 0.0), job) for seed, job in enumerate(jobs)),))

    one = trained("x", "y")
    for other in (trained("x", "z"), trained("v", "w"), trained("", "")):
        found = compare(one, other)
        assert (found.answer, found.interval, found.decider) == (Conclusion.CANNOT_TELL, None, None)
        assert "same trainings" not in found.sentence
    assert compare(trained("", ""), trained("", "")).interval is None, "whose jobs are not known"
    assert "both are the same trainings" in compare(one, trained("x", "y")).sentence


@pytest.mark.parametrize("deviation", [0.0, 0.01, 0.1])
def test_one_search_has_the_deviation_that_searches_are_taken_to_have(deviation: float) -> None:
    one, other = (arm(name, 0.5, 0.01, searches=1, seeds=4) for name in ("a", "b"))
    found = compare(one, replace(other, search_deviation=deviation))
    seeds = [statistics.variance([its.value for its in each.searches[0]]) / 4 for each in (one, other)]
    without = [
        statistics.fmean(b.blocks[k] for b in other.searches[0])
        - statistics.fmean(a.blocks[k] for a in one.searches[0])
        for k in range(20)
    ]
    rows = 19 / 20 * sum((each - statistics.fmean(without)) ** 2 for each in without)
    total = sum(seeds) + rows + deviation**2
    freedom = total**2 / (sum(v**2 / 3 for v in seeds) + rows**2 / 19)
    half = float(stats.t.ppf(0.975, freedom)) * math.sqrt(total)
    assert found.interval == pytest.approx((found.difference - half, found.difference + half), abs=1e-12)
    assert found.search_deviation == deviation
    assert ("is taken to vary" in found.sentence) == (deviation > 0)
    assert found.shares["searches"] == pytest.approx(deviation**2 / total)


def test_a_fitted_baseline_has_the_error_of_its_validation_rows_where_they_were_drawn_again() -> None:
    model = arm("a", 0.5, 0.01)
    values = (0.45, 0.47, 0.49)
    draws = Arm("svm", tuple((Outcome(1, value),) for value in values), fitted=True, searched=False)
    one = replace(draws, searches=draws.searches[:1])
    found, alone = (difference_of(its, model, "x", "max") for its in (draws, one))
    assert found.errors.arms == pytest.approx((0.02**2 / 3, float(model.error.variance)))
    assert alone.errors.arms == pytest.approx((0.0, float(model.error.variance)))
    assert (found.seeds, alone.seeds) == (2, 2)


def test_an_assumed_deviation_is_for_one_search_of_an_arm_that_was_searched() -> None:
    for its in (arm("a", 0.5, 0.01), replace(arm("a", 0.5, 0.01, searches=1), searched=False)):
        assert replace(its, search_deviation=SEARCH_DEVIATION).assumed_deviation == 0.0
    alone = replace(arm("a", 0.5, 0.01, searches=1), search_deviation=SEARCH_DEVIATION)
    assert alone.assumed_deviation == SEARCH_DEVIATION
    assert compare(alone, alone).search_deviation == 0.0


def test_failed_trainings_are_left_out() -> None:
    one, other = arm("a", 0.5, 0.01), arm("b", 0.52, 0.01)
    failed = Arm(one.label, (*one.searches, (Outcome(99, math.nan),)))

    assert compare(failed, other).interval == compare(one, other).interval
    with pytest.raises(ValueError, match="a has no finite test/accuracy"):
        compare(Arm("a", ((Outcome(1, math.nan),),)), other)


def test_rows_without_blocks_are_said_not_to_count() -> None:
    found = compare(arm("a", 0.5, 0.01, blocks=0), arm("b", 0.5, 0.01))

    assert not found.rows_counted
    assert "the error of the test rows is not counted" in found.sentence


def test_many_experiments_at_once_are_those_of_each() -> None:
    values = np.random.default_rng(0).normal(size=(7, 3, 4))
    values[2, 1, 3] = np.nan
    together = arm_error(values)

    for index, its in enumerate(values):
        assert [part[index] for part in together] == pytest.approx(list(map(float, arm_error(its))))
    assert rows_variance(values[0]).shape == (3,)
    assert half_width(np.ones((5, 2)), np.full((5, 2), 4.0), 0.95) == pytest.approx(
        np.full(5, float(stats.t.ppf(0.975, 8)) * math.sqrt(2))
    )


def test_p_agrees_with_the_interval() -> None:
    found = difference_of(arm("a", 0.5, 0.01), arm("b", 0.51, 0.01), "x", "max")
    assert found.p is not None
    low, high = found.interval(1 - found.p) or (math.nan, math.nan)

    assert min(abs(low), abs(high)) == pytest.approx(0, abs=1e-9)


@pytest.mark.parametrize("means", [(0.55, 0.53, 0.5), (0.55, 0.515, 0.514, 0.512), (0.5, 0.501), (0.9, 0.8)])
def test_a_family_is_decided_where_holm_decides(means: tuple[float, ...]) -> None:
    reference = arm("reference", 0.5, 0.004)
    pairs = [
        difference_of(reference, arm(f"arm {k}", mean, 0.004), "x", "max") for k, mean in enumerate(means)
    ]
    verdicts = compare_family(pairs, "settings", metric="x", mode="max", margin=0)
    adjusted = holm([each.p or 0.0 for each in pairs])

    assert [its.answer is not Conclusion.CANNOT_TELL for its in verdicts] == [p <= 0.05 for p in adjusted]
    assert {its.tests for its in verdicts} == {len(means)}
    assert all(f"corrected for {len(means)} comparisons" in its.sentence for its in verdicts)


def test_differences_without_an_error_are_no_part_of_a_family() -> None:
    alone = [Arm(name, ((Outcome(0, value),),)) for name, value in (("x", 0.5), ("y", 0.9))]
    pairs = [
        difference_of(alone[0], alone[1], "x", "max"),
        difference_of(arm("a", 0.5, 0.01), arm("b", 0.6, 0.01), "x", "max"),
    ]
    without, decided = compare_family(pairs, "settings", metric="x", mode="max")

    assert (without.answer, without.interval) == (Conclusion.CANNOT_TELL, None)
    assert (decided.answer, decided.level, decided.tests) == (Conclusion.HELPS, 0.95, 1)


def test_seeds_that_would_decide_are_counted_from_the_larger_arm() -> None:
    few, many = arm("few", 0.5, 0.01, searches=1, seeds=3), arm("many", 0.503, 0.01, searches=1, seeds=12)
    found = compare(few, many)
    difference = difference_of(few, many, "test/accuracy", "max")
    assert difference.seeds == 3
    target = max(abs(difference.value), 0.005 - abs(difference.value))
    how = {"target": target, "searches": 1, "seeds": 3, "rows": 400, "level": found.level}
    of_few = cheapest_decider(difference.errors, trainings=3, **how)
    assert of_few is not None
    assert of_few.about is not None
    assert found.decider == Decider("seeds", 4 * of_few.about, 400, False)


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
    (found,) = differences_of(arms[0], arms[1:], "x", "max", seeds=first == 0)
    pairs = np.subtract(treated, reference) if first == 0 else None
    spread = np.std(pairs, ddof=1) if pairs is not None else math.sqrt(2) * np.std(reference, ddof=1)
    degrees = (lambda n: n - 1) if first == 0 else (lambda n: 2 * (n - 1))
    enough = next(
        n for n in range(3, 200) if stats.t.ppf(0.975, degrees(n)) * spread / math.sqrt(n) <= found.value
    )
    verdict = compare_family([found], "settings", metric="x", mode="max", margin=0.0)[0]
    assert verdict.decider is not None
    assert (verdict.decider.what, verdict.decider.about, enough) == ("seeds", seeds, seeds)


@pytest.mark.parametrize("count", [2, 3, 6, 7])
def test_equal_values_of_every_seed_have_no_error_however_their_mean_is_rounded(count: int) -> None:
    same = [Arm(label, (tuple(Outcome(k, value) for k in range(count)),)) for label, value in PAIR]
    found = difference_of(*same, "x", "max")
    assert (found.is_known, found.p, found.interval(0.95)) == (False, None, None)


def test_the_error_of_a_search_is_assumed_for_shares_alone() -> None:
    shares = ("test/micro_f1", "knn_best/test/ranking_loss", "val/accuracy_price", "test/my_metric")
    assert {search_deviation(name) for name in shares} == {SEARCH_DEVIATION}
    others = ("test/coverage_error", "val/loss", "time/train_seconds", "knn_best/k", "test/lca_distance")
    assert all(math.isnan(search_deviation(name)) for name in others)
    arms = [replace(arm(label, mean, 0.01, searches=1), search_deviation=math.nan) for label, mean in PAIR]
    found = compare(*arms)
    assert (found.answer, found.interval, found.search_deviation) == (Conclusion.CANNOT_TELL, None, 0.0)
    assert "its error is not known" in found.sentence
