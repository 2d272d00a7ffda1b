"""Tests of oracles that compute more than a mean over positives, on cases that are solved by hand."""

import math
import random

import pytest
from losses.oracles import (
    any_,
    hicone,
    himulcon,
    himulcone,
    jscl,
    lascl,
    level_positives,
    levels_constrained,
    log_probability,
    msc,
    msc_weights,
    pairs_constrained,
    supcon,
)

SAME = [[0.0, 0.0]] * 4
"""Four equal rows, so that every pair loss is log 3."""
CORNERS = [[1.0, 0.0], [0.0, 1.0], [1.0, 0.0], [0.0, 1.0]]
"""Two points, of rows 0, 2 and of rows 1, 3; for tau = 1 a pair loss is log(e + 2), less 1 at one point."""
FAR = math.log(math.e + 2)
EXP = [math.exp(1 / 2), math.exp(1)]


def random_rows(count, seed=0):
    g = random.Random(seed)
    z = [[g.gauss(0, 1) for _ in range(3)] for _ in range(count)]
    sets = [frozenset(g.sample(range(5), g.randrange(4))) for _ in range(count)]
    paths = [(g.randrange(-1, 2), g.randrange(-1, 2), g.randrange(-1, 2)) for _ in range(count)]
    return z, sets, paths


def test_one_level_is_supcon():
    classes = [0, 1, 0, 2, -1, 1, 0, -1]
    z = random_rows(len(classes))[0]
    expected = supcon(z, classes, 0.3)
    paths = [(c,) for c in classes]
    assert himulcon(z, paths, 0.3, "uniform") == pytest.approx(expected)
    assert himulcon(z, paths, 0.3) == pytest.approx([math.e * term for term in expected])
    for loss in (hicone, lambda *a: himulcone(*a, level_weights=(1.0,))):
        assert loss(z, paths, 0.3) == pytest.approx(expected)


def test_levels_of_a_path():
    paths = [(0, 0), (0, 0), (0, 1), (1, 1)]
    full_term, coarse_term = sum(EXP) / 2 * math.log(3), EXP[0] / 2 * math.log(3)
    assert himulcon(SAME, paths, 1) == pytest.approx([full_term, full_term, coarse_term, 0])
    assert himulcon(SAME, paths, 1, "uniform") == pytest.approx([math.log(3) * x for x in (1, 1, 0.5, 0)])
    assert himulcon(SAME, paths, 1, [0, 4]) == pytest.approx([math.log(3) * x for x in (2, 2, 0, 0)])


def test_exclusive_levels_count_a_row_once():
    paths = [(0, 0), (0, 0), (1, 0), (1, 1)]
    fine_term, coarse_term = EXP[1] / 2 * math.log(3), EXP[0] / 2 * math.log(3)
    assert himulcon(SAME, paths, 1, exclusive=True) == pytest.approx(
        [fine_term, fine_term, coarse_term, coarse_term]
    )
    assert himulcon(SAME, paths, 1)[0] == pytest.approx(fine_term + coarse_term)


def test_an_unknown_level_ends_the_path():
    paths = [(0, -1, 5), (0, -1, 5), (-1, 0, 0), (-1, 0, 0)]
    assert himulcon(SAME, paths, 1, "uniform") == pytest.approx([math.log(3) / 3] * 2 + [0, 0])


@pytest.mark.parametrize("granularity", ["pair", "level"])
def test_a_coarse_level_is_raised_to_the_fine_one(granularity):
    """Fine positives are far apart; at the coarse level the near rows would lower the mean by 1/3."""
    paths = [(0, 0), (0, 0), (0, 1), (0, 1)]
    assert himulcon(CORNERS, paths, 1, "uniform") == pytest.approx([FAR - 1 / 6] * 4)
    assert hicone(CORNERS, paths, 1, granularity) == pytest.approx([FAR] * 4)
    expected = [sum(EXP) / 2 * FAR] * 4
    assert himulcone(CORNERS, paths, 1, granularity=granularity) == pytest.approx(expected)


@pytest.mark.parametrize("granularity", ["pair", "level"])
def test_a_coarse_level_that_is_larger_stays(granularity):
    paths = [(0, 0), (0, 1), (0, 0), (0, 1)]
    expected = himulcon(CORNERS, paths, 1)
    assert himulcone(CORNERS, paths, 1, granularity=granularity) == pytest.approx(expected)


def test_pairs_are_raised_where_a_level_is_not():
    """The mean of the coarse level is larger, but two of its pairs are below the largest fine pair."""
    z, paths = CORNERS[:3], [(0, 0), (0, 0), (0, 1)]
    far_loss, even_loss = math.log(1 + math.e), math.log(2)
    assert hicone(z, paths, 1) == pytest.approx([far_loss, (even_loss + far_loss) / 2, far_loss / 2])
    assert hicone(z, paths, 1, "level") == pytest.approx(himulcon(z, paths, 1, "uniform"))


def test_no_level_is_below_a_finer_one():
    z, _, paths = random_rows(16, seed=3)
    sums = [math.fsum(terms) for _, terms in levels_constrained(z, paths, 0.2)]
    assert sums == sorted(sums)
    assert sums[0] > 0
    largest_loss = 0.0
    for level, terms in pairs_constrained(z, paths, 0.2):
        anchors = [i for i in range(len(z)) if level_positives(paths, i, level)]
        assert all(terms[i] >= largest_loss * (1 - 1e-12) for i in anchors)
        pairs = [-log_probability(z, i, p, 0.2) for i in anchors for p in level_positives(paths, i, level)]
        largest_loss = max(largest_loss, *pairs)


@pytest.mark.parametrize("normalizer", ["candidates", "similarities"])
def test_jscl_of_equal_sets_is_any(normalizer):
    z, sets = random_rows(6)[0], [frozenset({1, 2})] * 6
    assert jscl(z, sets, 0.4, normalizer) == pytest.approx(any_(z, sets, 0.4))


def test_jscl_by_hand():
    sets = [frozenset({0, 1}), frozenset({1, 2}), frozenset(), frozenset()]
    assert jscl(SAME, sets, 1) == pytest.approx([math.log(3) / 9] * 2 + [0, 0])
    assert jscl(SAME, sets, 1, "similarities") == pytest.approx([math.log(3)] * 2 + [0, 0])


def test_lascl_by_hand():
    paths = [(0, 0), (0, 0), (0, 1), (1, 1)]
    assert lascl(SAME, paths, 1) == pytest.approx([math.log(2), math.log(2), 0, 0])
    near_mass, far_mass = math.exp(1 / 0.75), math.exp(1 / 0.5)
    assert lascl(CORNERS, paths, 1) == pytest.approx([math.log(near_mass + 1), math.log(1 + far_mass), 0, 0])
    candidate_terms = math.log(near_mass + 2), math.log(2 + far_mass)
    assert lascl(CORNERS, paths, 1, denominator="candidates") == pytest.approx([*candidate_terms, 0, 0])


def test_lascl_of_equally_similar_classes_is_supcon():
    z, _, paths = random_rows(30)
    classes = [path if -1 not in path else -1 for path in paths]
    expected = supcon(z, classes, 0.3)
    assert any(expected)
    assert lascl(z, paths, 0.3, 1.0, "candidates") == pytest.approx(expected)


def test_equal_sets_of_paths():
    one_path, two_paths = frozenset({(0, 0)}), frozenset({(0, 0), (0, 1)})
    paths = [one_path, two_paths, two_paths, frozenset({(1, 0), (1, -1)})]
    third = math.log(3) / 2
    assert himulcon(SAME, paths, 1, "uniform") == pytest.approx([2 * third] * 3 + [0])
    equal_terms = himulcon(SAME, paths, 1, "uniform", positives="equal")
    assert equal_terms == pytest.approx([third, 2 * third, 2 * third, 0])


def test_msc_weights_by_hand():
    sets, alpha = [frozenset({0, 1}), frozenset({1}), frozenset()], 3.0
    n = 1 + alpha / 2
    assert msc_weights(sets, 0, alpha, True) == ({1: alpha / 4 / n}, {0: 1 / 2, 1: 1 / (2 * n)})
    assert msc_weights(sets, 1, alpha, True) == ({0: alpha / 2 / n}, {1: 1 / n})
    assert msc_weights(sets, 0, alpha, False) == ({1: 1 / 2}, {})
    assert msc_weights(sets, 2, alpha, True) == ({}, {})


@pytest.mark.parametrize("alpha", [0.5, 1, 4])
def test_msc_weights_of_a_labelled_row_sum_to_one(alpha):
    sets = random_rows(9, seed=1)[1]
    sums = [
        math.fsum([*r.values(), *c.values()])
        for r, c in (msc_weights(sets, i, alpha, True) for i in range(9))
    ]
    assert sums == pytest.approx([1.0 if s else 0.0 for s in sets])
    assert 0 < sum(map(bool, sets)) < 9


def test_beta_weighs_the_rows_in_the_denominator():
    sets = [frozenset({0, 1}), frozenset({1}), frozenset(), frozenset()]
    centres = [[0.0, 0.0]] * 2
    assert msc(SAME, sets, 1, centres, beta=5) == pytest.approx([math.log(17)] * 2 + [0, 0])
    assert msc(SAME, sets, 1, beta=5) == pytest.approx([math.log(15) / 2, math.log(15), 0, 0])
    assert msc(SAME, sets, 1, [[1.0, 0.0], [0.0, 1.0]]) == pytest.approx([math.log(5)] * 2 + [0, 0])


def test_msc_attracts_the_prototypes_of_its_own_labels():
    z, sets = [[1.0, 0.0], [0.0, 0.0]], [frozenset({0}), frozenset({1})]
    centres = [[2.0, 0.0], [0.0, 2.0]]
    expected = [math.log(math.exp(2) + 2) - 2, math.log(3)]
    assert msc(z, sets, 1, centres) == pytest.approx(expected)
