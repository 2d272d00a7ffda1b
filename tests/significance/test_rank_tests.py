"""Tests of rank tests over data sets, against Demsar's figures, slow loops and tables with a known effect."""

import itertools
import math

import numpy as np
import pytest
from scipy import stats

from mlcl.significance.rank_tests import (
    RankTest,
    bayesian_signed_rank,
    critical_difference,
    iman_davenport,
    rank_test,
)

AUC = np.array(
    [
        [0.763, 0.768, 0.771, 0.798], [0.599, 0.591, 0.590, 0.569], [0.954, 0.971, 0.968, 0.967],
        [0.628, 0.661, 0.654, 0.657], [0.882, 0.888, 0.886, 0.898], [0.936, 0.931, 0.916, 0.931],
        [0.661, 0.668, 0.609, 0.685], [0.583, 0.583, 0.563, 0.625], [0.775, 0.838, 0.866, 0.875],
        [1.000, 1.000, 1.000, 1.000], [0.940, 0.962, 0.965, 0.962], [0.619, 0.666, 0.614, 0.669],
        [0.972, 0.981, 0.9751, 0.975], [0.957, 0.978, 0.946, 0.970],
    ]
).T  # fmt: skip
"""The AUC of C4.5, C4.5+m, C4.5+cf and C4.5+m+cf on 14 data sets (Demsar 2006, table 6). On voting, the paper
prints equal values of the last two but ranks them 2 and 3."""


def loop_ranks(column, *, higher):
    """Returns ranks, of which 1 is the best; equal figures share the mean of their ranks."""
    ranks = []
    for figure in column:
        better_count = sum((other > figure) == higher and other != figure for other in column)
        equal_count = sum(other == figure for other in column)
        ranks.append(better_count + (1 + equal_count) / 2)
    return ranks


def loop_friedman(figures, *, higher):
    """Returns mean ranks, chi2 (Demsar 2006, 3.2.1), and chi2 corrected for ties (Conover 1999, 5.8)."""
    k, n = figures.shape
    ranks = np.array([loop_ranks(column, higher=higher) for column in figures.T]).T
    means = [sum(row) / n for row in ranks]
    chi2 = 12 * n / (k * (k + 1)) * (sum(mean**2 for mean in means) - k * (k + 1) ** 2 / 4)
    ties = sum(count**3 - count for column in ranks.T for count in np.unique(column, return_counts=True)[1])
    return means, chi2, chi2 / (1 - ties / (n * k * (k**2 - 1)))


def test_the_worked_example_of_demsar():
    result = rank_test(AUC, higher=True)
    assert result.ranks == pytest.approx((3.143, 2.000, 2.893, 1.964), abs=5e-4)
    _, plain_chi2, corrected_chi2 = loop_friedman(AUC, higher=True)
    assert plain_chi2 == pytest.approx(9.28, abs=5e-3)  # the paper prints it without the correction for ties
    assert 13 * plain_chi2 / (14 * 3 - plain_chi2) == pytest.approx(3.69, abs=5e-3)
    assert result.chi2 == pytest.approx(corrected_chi2, rel=1e-12)
    assert result.p == pytest.approx(stats.chi2.sf(corrected_chi2, 3))
    assert result.f == pytest.approx(13 * corrected_chi2 / (14 * 3 - corrected_chi2))
    assert result.f_p == pytest.approx(stats.f.sf(result.f, 3, 39))
    assert result.critical_difference == pytest.approx(1.25, abs=5e-3)
    # As in the paper, no two methods differ at 0.05; at 0.10, where CD = 1.12, C4.5 differs from two others.
    assert critical_difference(4, 14, 0.10) == pytest.approx(1.12, abs=5e-3)
    assert result.groups == [(3, 1, 2, 0)]


@pytest.mark.parametrize(
    ("level", "printed"),
    [
        (0.05, [1.960, 2.343, 2.569, 2.728, 2.850, 2.949, 3.031, 3.102, 3.164]),
        (0.10, [1.645, 2.052, 2.291, 2.459, 2.589, 2.693, 2.780, 2.855, 2.920]),
    ],
)
def test_critical_values_are_those_of_demsars_table_5(level, printed):
    values = [critical_difference(k, 1, level) / math.sqrt(k * (k + 1) / 6) for k in range(2, 11)]
    assert values == pytest.approx(printed, abs=1.1e-3)


@pytest.mark.parametrize("higher", [True, False])
@pytest.mark.parametrize("seed", range(5))
def test_ranks_and_chi2_are_those_of_a_slow_loop(seed, higher):
    rng = np.random.default_rng(seed)
    figures = rng.integers(0, 4, size=(3 + seed, 6)) / 4  # many ties
    means, _, chi2 = loop_friedman(figures, higher=higher)
    result = rank_test(figures, higher=higher)
    assert result.ranks == pytest.approx(means, rel=1e-12)
    assert result.chi2 == pytest.approx(chi2, rel=1e-10)


def test_figures_that_differ_by_rounding_are_equal():
    result = rank_test([[0.1 + 0.2] * 3, [0.3] * 3, [0.1] * 3], higher=True)
    assert result.ranks == (1.5, 1.5, 3.0)


def test_where_all_agree_f_is_infinite_and_where_none_differs_nothing_is_found():
    certain_result = rank_test(np.arange(3)[:, None] * np.ones(5), higher=True)
    assert (certain_result.f, certain_result.f_p, certain_result.ranks) == (math.inf, 0.0, (3.0, 2.0, 1.0))
    null_result = rank_test(np.ones((3, 5)), higher=True)
    assert (null_result.chi2, null_result.p, null_result.f, null_result.f_p) == (0.0, 1.0, 0.0, 1.0)


@pytest.mark.parametrize("seed", range(8))
def test_groups_are_the_largest_sets_without_a_difference(seed):
    rng = np.random.default_rng(seed)
    test = RankTest(9, tuple(rng.permutation(rng.uniform(1, 7, size=7))), 0, 1, 0, 1, 1.5)
    candidates = [
        set(sets)
        for size in range(2, 8)
        for sets in itertools.combinations(range(7), size)
        if not any(test.differ(a, b) for a, b in itertools.combinations(sets, 2))
    ]
    largest_sets = [sets for sets in candidates if not any(sets < other for other in candidates)]
    assert sorted(map(sorted, test.groups)) == sorted(map(sorted, largest_sets))


def test_the_number_of_data_sets_is_the_first_that_decides():
    result = rank_test(AUC, higher=True)
    needed_count = result.data_sets_to_differ(3, 0)
    rank_difference = result.ranks[0] - result.ranks[3]
    assert critical_difference(4, needed_count) <= rank_difference < critical_difference(4, needed_count - 1)
    assert result.data_sets_to_differ(1, 1) is None


def test_where_f_alone_is_open_the_number_of_data_sets_is_the_first_with_which_it_decides():
    rng = np.random.default_rng(14)
    figures = rng.normal(size=(10, 4))
    figures[-1] += 3
    result = rank_test(figures, higher=True)
    assert result.differ(9, 0)
    assert result.f_p > 0.05
    needed_count = result.data_sets_to_differ(9, 0)
    assert 4 < needed_count <= 8
    assert (
        rank_test(np.tile(figures, 2), higher=True).f_p == iman_davenport(2 * result.chi2, 10, 8)[1] <= 0.05
    )
    p = [iman_davenport(result.chi2 * n / 4, 10, n)[1] for n in (needed_count - 1, needed_count)]
    assert p[1] <= 0.05 < p[0]


@pytest.mark.parametrize("figures", [[[1, 2, 3]] * 2, [[1, 2]] * 3, [1, 2, 3], [[1, 2, math.nan]] * 3])
def test_what_cannot_be_ranked(figures):
    with pytest.raises(ValueError, match=r"needs 3 methods|not finite"):
        rank_test(figures, higher=True)


def test_the_bayesian_test_is_the_loop_over_pairs():
    d, rope, draws = [0.02, -0.01, 0.03, 0.005, 0.0], 0.004, 4000
    z, rng, wins = [0.0, *d], np.random.default_rng(1), np.zeros(3)
    for _ in range(draws):
        w = rng.dirichlet([0.5, 1, 1, 1, 1, 1])
        theta = np.zeros(3)
        for i, j in itertools.product(range(6), repeat=2):
            total = z[i] + z[j]
            theta[0 if total < -2 * rope else 2 if total > 2 * rope else 1] += w[i] * w[j]
        wins[theta.argmax()] += 1
    probabilities = bayesian_signed_rank(d, rope)
    assert sum(probabilities) == pytest.approx(1)
    # The tolerance is four standard errors of the loop's shares.
    assert probabilities == pytest.approx(tuple(wins / draws), abs=4 * 0.5 / math.sqrt(draws))


def test_the_bayesian_test_gives_what_baycomp_1_0_3_does():
    """Tests against baycomp's two_on_multiple(a, b, rope=0.01) on C4.5 and C4.5+m, with 50,000 draws."""
    assert bayesian_signed_rank(AUC[1] - AUC[0], 0.01) == pytest.approx((0, 0.329, 0.671), abs=0.012)


def test_the_bayesian_test_is_symmetric_and_sure_where_it_can_be():
    assert bayesian_signed_rank([1.0] * 12, 0.1)[2] > 0.999
    assert bayesian_signed_rank([0.0] * 12, 0.1) == (0.0, 1.0, 0.0)
    below, within, above = bayesian_signed_rank(AUC[0] - AUC[3], 0.01)
    assert (above, within, below) == pytest.approx(bayesian_signed_rank(AUC[3] - AUC[0], 0.01), abs=0.012)


@pytest.mark.parametrize(("d", "rope"), [([], 0.1), ([math.nan], 0.1), ([0.1], -1), ([0.1], math.nan)])
def test_what_the_bayesian_test_refuses(d, rope):
    with pytest.raises(ValueError, match="finite differences"):
        bayesian_signed_rank(d, rope)


def rejections(effect, n, tables=400, k=5):
    """Returns how often F rejects at 0.05, and how often the best and the worst method then differ."""
    rng = np.random.default_rng(n)
    means = np.linspace(0, effect, k)[:, None]
    results = [rank_test(means + rng.normal(size=(k, n)), higher=True) for _ in range(tables)]
    best_differs = [test.f_p <= 0.05 and test.differ(0, k - 1) for test in results]
    return np.mean([test.f_p <= 0.05 for test in results]), np.mean(best_differs)


def test_without_an_effect_the_tests_err_at_their_level():
    # The upper bound is three standard errors of 400 tables above 0.05.
    level, difference_rate = rejections(0.0, n=10)
    assert 0.02 < level < 0.083
    assert difference_rate <= 0.03


def test_an_effect_is_found_the_more_often_the_more_data_sets_there_are():
    small_rates, large_rates = rejections(2.0, n=4), rejections(2.0, n=12)
    assert small_rates[0] < large_rates[0]
    assert large_rates[0] > 0.9
    assert large_rates[1] > 0.8
