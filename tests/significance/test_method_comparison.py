"""Tests of the comparison of methods over data sets: the cells that count, the tests and the sentences."""

import json
from statistics import fmean

import numpy as np
import pytest
from scipy import stats

from mlcl.significance.method_comparison import compare_methods, complete_part
from mlcl.significance.method_comparison_text import as_dict, sentences, tables
from mlcl.significance.paired_tests import compare_paired, holm
from mlcl.significance.rank_tests import bayesian_signed_rank

METHODS, SEEDS = ("bce", "asl", "simdis", "any"), range(6)


def made_up(effects, n, *, seed=0, noise=0.3):
    """Returns figures by (method, data set) and seed: method effect plus data set level plus noise."""
    rng = np.random.default_rng(seed)
    levels = rng.normal(60, 10, size=n)
    return {
        (method, f"set{j}"): dict(enumerate((levels[j] + effect + noise * rng.normal(size=6)).tolist()))
        for method, effect in zip(METHODS, effects, strict=True)
        for j in range(n)
    }


def compared(cells, n, **how):
    names = [f"set{j}" for j in range(n)]
    return compare_methods("F1", cells, METHODS, names, **{"higher": True, "control": "bce", **how})


@pytest.mark.parametrize("higher", [True, False])
def test_each_part_is_that_of_the_tests_it_is_made_of(higher):
    cells = made_up([0, 0.4, 0.8, 0.8], 7)
    comparison = compared(cells, 7, higher=higher, rope=0.2)
    means = {m: [fmean(cells[m, f"set{j}"].values()) for j in range(7)] for m in METHODS}
    sign = 1 if higher else -1
    ranks = [sum(sign * (means[o][j] - means[m][j]) > 0 for o in METHODS for j in range(7)) / 7 + 1
             for m in METHODS]  # fmt: skip
    assert comparison.test.ranks == pytest.approx(ranks)
    other_methods = METHODS[1:]
    assert [contrast.method for contrast in comparison.against] == list(other_methods)
    # No two differences are equal, so SciPy's exact signed-rank test applies.
    p = [stats.wilcoxon(means[m], means["bce"], mode="exact").pvalue for m in other_methods]
    assert [contrast.p for contrast in comparison.against] == pytest.approx(p)
    assert [contrast.adjusted for contrast in comparison.against] == pytest.approx(holm(p))
    assert comparison.against[0].paired == compare_paired(means["bce"], means["asl"])
    gains = [sign * (a - b) for a, b in zip(means["asl"], means["bce"], strict=True)]
    assert comparison.against[0].bayes == bayesian_signed_rank(gains, 0.2)


def test_methods_that_are_equal_everywhere_tie():
    cells = {place: dict.fromkeys(SEEDS, 50.0) for place in made_up([0] * 4, 3)}
    comparison = compared(cells, 3)
    assert [contrast.p for contrast in comparison.against] == [1.0] * 3
    assert sentences(comparison)[1].startswith("So it is not decided whether the methods differ at all")
    assert sentences(comparison)[2].endswith(
        "no number of data sets like these, for their average ranks are equal."
    )


def test_the_same_lead_on_all_data_sets_counts_as_the_rank_test_counts_it():
    cells = made_up([0, 0, 0, 0], 5, noise=0)
    lead = {
        (m, name): {s: v + METHODS.index(m) for s, v in seed_values.items()}
        for (m, name), seed_values in cells.items()
    }
    assert [contrast.p for contrast in compared(lead, 5).against] == [2 / 2**5] * 3


def test_what_lacks_most_is_left_out_first_and_named():
    cells = made_up([0, 0, 0, 0], 5)
    del cells["asl", "set1"], cells["asl", "set2"], cells["any", "set4"]
    assert complete_part(cells, METHODS, [f"set{j}" for j in range(5)]) == (
        ("bce", "simdis", "any"), ("set0", "set1", "set2", "set3")
    )  # fmt: skip
    comparison = compared(cells, 5)
    assert comparison.left_out == ("asl", "set4")
    assert "Left out, for they lack cells: asl, set4." in sentences(comparison)


def test_too_little_is_not_compared():
    cells = made_up([0] * 4, 3)
    assert compared(cells, 2) is None
    assert compared(cells, 3, control="absent") is None
    assert compared({place: values for place, values in cells.items() if place[0] in METHODS[:2]}, 3) is None
    assert complete_part({}, ["a"], ["b"]) == (("a",), ())


def test_words_and_tables_of_a_clear_case():
    comparison = compared(made_up([0, 1, 2, 3], 8), 8, rope=0.1)
    friedman, nemenyi = sentences(comparison)
    assert friedman.startswith("F1 of 4 methods over 8 data sets (set0, set1, ")
    assert "the best average rank, 1.00, has any" in friedman
    assert "apart: 3 of 6 pairs" in nemenyi
    (table,) = tables(comparison)
    assert [row[0] for row in table["rows"]] == ["any", "simdis", "asl", "bce"]
    assert table["rows"][-1] == ("bce", "4.00", "control", *[""] * 7)
    assert table["rows"][0][4:7] == ("0.00781", "0.0234", "decided")
    assert table["heads"][-3:] == ("P(worse)", "P(within 0.1)", "P(better)")
    assert table["rows"][0][-1] == "1.00"


def test_what_would_decide_is_said_where_it_is_open():
    comparison = compared(made_up([0, 0.1, 0, 0.1], 3), 3)
    (sentence,) = [text for text in sentences(comparison) if text.startswith("What would decide")]
    best = min(range(4), key=lambda place: comparison.test.ranks[place])
    assert sentence.startswith(f"What would decide between {METHODS[best]} and ")
    assert "needs at least 7 data sets" in sentence  # 2 / 2^n is below .05 / 3 from n = 7 on
    heads, rows = tables(comparison)[0]["heads"], tables(comparison)[0]["rows"]
    column = heads.index("further data sets")
    assert all(row[column] == "unknown" or int(row[column]) >= 4 for row in rows if row[2] != "control")


def test_json_has_no_infinity():
    cells = made_up([0, 50, 100, 150], 3, noise=0)
    tree = json.loads(json.dumps(as_dict(compared(cells, 3)), allow_nan=False))
    assert (tree["test"]["f"], tree["test"]["f_p"], tree["control"]) == (None, 0.0, "bce")
    assert tree["sentences"]
    assert tree["tables"][0]["heads"][0] == "method"
