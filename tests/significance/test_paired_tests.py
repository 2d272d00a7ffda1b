"""Tests of the paired comparison against counts, loops and simulated data with a known effect."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from mlcl.significance.paired_tests import Paired, compare_paired, holm, smallest_p

A = [0.50, 0.52, 0.49, 0.51, 0.53, 0.50]
B = [0.53, 0.54, 0.53, 0.50, 0.56, 0.55]


def flips(d):
    """Returns the p-value of the sign-flip test, computed from its definition."""
    means = [np.mean(np.multiply(d, signs)) for signs in itertools.product((1, -1), repeat=len(d))]
    bound = abs(np.mean(d)) - 1e-12
    return min(1.0, 2 * min(sum(m >= bound for m in means), sum(m <= -bound for m in means)) / len(means))


def ranks(d):
    """Returns the p-value of the signed-rank test without ties, computed from its definition."""
    order = {abs(v): rank for rank, v in enumerate(sorted(d, key=abs), start=1)}
    sums = [
        sum(order[abs(v)] for v, sign in zip(d, signs, strict=True) if sign > 0)
        for signs in itertools.product((1, -1), repeat=len(d))
    ]
    positive_sum = sum(order[abs(v)] for v in d if v > 0)
    return min(
        1.0, 2 * min(sum(s >= positive_sum for s in sums), sum(s <= positive_sum for s in sums)) / len(sums)
    )


def test_the_figures_of_a_small_case():
    comparison = compare_paired(A, B)
    d = np.subtract(B, A)
    assert comparison.n == 6
    assert comparison.means == pytest.approx((np.mean(A), np.mean(B)))
    assert comparison.deviations == pytest.approx((np.std(A, ddof=1), np.std(B, ddof=1)))
    assert (comparison.difference, comparison.deviation) == pytest.approx((d.mean(), d.std(ddof=1)))
    assert comparison.effect == pytest.approx(d.mean() / d.std(ddof=1) * (1 - 3 / 19))
    assert comparison.p == pytest.approx(flips(d))
    assert comparison.smallest_p == 0.03125
    assert comparison.method == "bootstrap-t"
    assert comparison.interval[0] < comparison.difference < comparison.interval[1]


@settings(deadline=None)
@given(st.lists(st.floats(-1, 1), min_size=2, max_size=7, unique_by=lambda v: round(abs(v), 3)))
def test_both_tests_are_counts_over_all_flips(d):
    if min(map(abs, d)) < 1e-3 or np.std(d) < 1e-3:
        return
    comparison = compare_paired([0.0] * len(d), d)
    assert comparison.p == pytest.approx(flips(d))
    assert comparison.wilcoxon == pytest.approx(ranks(d))
    assert comparison.p >= comparison.smallest_p - 1e-12


@pytest.mark.parametrize("d", [(3, 0, 1, -1, 2, 3), (0, 0, 5, 5), (1, 1, 1, 1, -1), (4, -4, 0, 2, 7, 7, -1)])
def test_ranks_with_ties_and_zeros_are_those_of_scipy(d):
    method = stats.PermutationMethod(n_resamples=10_000, rng=0)
    expected = stats.wilcoxon(d, zero_method="zsplit", method=method).pvalue
    assert compare_paired([0.0] * len(d), d).wilcoxon == pytest.approx(expected)


@settings(deadline=None)
@given(st.permutations(range(6)), st.floats(-5, 5))
def test_the_order_of_seeds_and_what_both_share_do_not_count(order, shift):
    comparison = compare_paired(A, B)
    other = compare_paired([A[i] + shift for i in order], [B[i] + shift for i in order])
    assert (other.difference, other.p, other.effect, other.wilcoxon) == pytest.approx(
        (comparison.difference, comparison.p, comparison.effect, comparison.wilcoxon)
    )


def test_swapping_turns_the_sign():
    comparison, other = compare_paired(A, B), compare_paired(B, A)
    assert (other.difference, other.effect) == pytest.approx((-comparison.difference, -comparison.effect))
    assert (other.p, other.wilcoxon) == (comparison.p, comparison.wilcoxon)
    assert other.interval == pytest.approx((-comparison.interval[1], -comparison.interval[0]), abs=0.003)


@pytest.mark.parametrize(
    ("n", "p"),
    [
        (1, 1.0),
        (2, 0.5),
        (5, 0.0625),
        (6, 0.03125),
        (10, 2 / 1024),
        (13, 2 / 8192),
        (14, 2 / 10_001),
        (20, 2 / 10_001),
    ],
)
def test_the_smallest_p_is_reached_where_all_differences_point_one_way(n, p):
    d = np.arange(1, n + 1, dtype=float)
    assert smallest_p(n) == p
    assert compare_paired(np.zeros(n), d).p == pytest.approx(p)


def test_one_pair_and_equal_differences_say_little():
    single = compare_paired([0.5], [0.6])
    assert (single.n, single.p, single.interval, single.deviation, single.effect) == (
        1,
        1.0,
        None,
        None,
        None,
    )
    equal_steps = compare_paired([0.1, 0.2, 0.3], [0.2, 0.3, 0.4])
    assert (equal_steps.interval, equal_steps.effect, equal_steps.wilcoxon) == (None, None, None)
    assert equal_steps.p == 0.25
    same_values = compare_paired(A, A)
    assert (same_values.p, same_values.difference, same_values.further_seeds()) == (1.0, 0.0, None)


@pytest.mark.parametrize(
    "d", [(0.0100, 0.0101, 0.0100, 0.0099, 0.05), (0.001, 0.001, 0.001, 0.001, -0.001), (0, 0, 0, 0, 0, 0.1)]
)
def test_pairs_that_are_nearly_equal_do_not_stretch_the_interval(d):
    low, high = compare_paired([0.5] * len(d), np.add(0.5, d)).interval
    assert low < np.mean(d) < high
    assert high - low < 10 * np.std(d, ddof=1) / math.sqrt(len(d))


@settings(deadline=None)
@given(st.lists(st.integers(-3, 8), min_size=3, max_size=7), st.sampled_from([200, 500, 1300]))
def test_figures_that_are_counts_tie_as_the_counts_do(counts, rows):
    first = np.arange(700, 700 + len(counts))
    exact_comparison = compare_paired(first, first + counts)
    comparison = compare_paired(first / rows, (first + counts) / rows)
    assert comparison.p == exact_comparison.p == pytest.approx(flips(counts))
    assert comparison.wilcoxon == exact_comparison.wilcoxon


def test_what_is_no_pair_is_refused():
    for a, b in (([], []), ([1.0], [1.0, 2.0]), ([math.nan], [1.0]), ([1.0], [math.inf])):
        with pytest.raises(ValueError):  # noqa: PT011
            compare_paired(a, b)


def test_holm_by_hand():
    assert holm([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])
    assert holm([0.5, 0.9]) == [1.0, 1.0]
    assert holm([]) == []
    with pytest.raises(ValueError, match="not probabilities"):
        holm([0.1, 1.5])


def result(effect, n, p=0.5):
    return Paired(n, (0, 0), (0, 0), effect, 1.0, None, "", effect, p, None, smallest_p(n))


def test_further_seeds_are_as_many_as_textbooks_say():
    # A paired t test of 80 % power at 5 % needs 34 pairs for d = .5, and 15 for .8.
    assert 3 + result(0.5, 3).further_seeds() == 34
    assert 3 + result(-0.8, 3).further_seeds() == 15
    assert result(0.5, 3).further_seeds(tests=3) > result(0.5, 3).further_seeds()
    assert result(0.01, 3).further_seeds() is None
    assert result(0.5, 9, p=0.01).further_seeds() == 0


def test_few_pairs_have_the_power_of_signs_that_all_agree():
    effect, rng = 1.5, np.random.default_rng(0)
    n = 3 + result(effect, 3).further_seeds()
    samples = rng.normal(effect, 1, (400, n))
    power = np.mean([compare_paired(np.zeros(n), sample).p <= 0.05 for sample in samples])
    assert (n, power > 0.78) == (7, True), power


def test_further_seeds_are_enough_for_the_test_to_reach_its_level():
    # Five pairs never have a p below .05, however large the effect, so six are needed.
    assert result(50.0, 3).further_seeds() == 3
    assert result(50.0, 3).further_seeds(tests=10) == 6


@pytest.mark.parametrize("draw", ["normal", "uniform", "exponential"])
@pytest.mark.parametrize("n", [3, 5, 8])
def test_the_interval_holds_the_true_effect_as_often_as_it_says(draw, n):
    """Tests on 200 experiments that the 95 % interval contains the true difference at least 90 % of the time.

    Three pairs of skewed differences are allowed 80 %: the t interval assumes normal differences.
    """
    rng = np.random.default_rng(n)
    noise = {
        "normal": lambda: rng.normal(size=n),
        "uniform": lambda: rng.uniform(-1, 1, size=n),
        "exponential": lambda: rng.exponential(size=n) - 1,
    }[draw]
    hits = 0
    for number in range(200):
        a = rng.normal(size=n)
        low, high = compare_paired(a, a + 0.3 + noise(), seed=number).interval
        hits += low <= 0.3 <= high
    bound = 0.80 if (draw, n) == ("exponential", 3) else 0.90
    assert bound <= hits / 200 <= 0.995


@pytest.mark.parametrize("n", [5, 6, 8])
def test_without_an_effect_the_tests_err_no_more_often_than_they_say(n):
    rng = np.random.default_rng(n)
    sign = rank = 0
    for _ in range(200):
        a, b = rng.normal(size=n), rng.normal(size=n)
        comparison = compare_paired(a, b)
        sign, rank = sign + (comparison.p <= 0.05), rank + (comparison.wilcoxon <= 0.05)
    bound = 0.05 + 3 * math.sqrt(0.05 * 0.95 / 200)
    assert max(sign, rank) / 200 <= bound
    assert (n < 6) == (max(sign, rank) == 0)
