"""Whether the best model beats the best baseline: who is chosen, what is said."""

import math

import pytest

from mlcl.significance.baseline_verdict import Contender, Role, compare_baselines, figure_name
from mlcl.significance.paired_tests import compare_paired

SEEDS = range(6)


def contender(label, validation, test, role=Role.MODEL):
    """Figures of all seeds; `test` by seed, or one for all."""
    tests = test if isinstance(test, list) else [test] * len(SEEDS)
    return Contender(label, role, dict.fromkeys(SEEDS, validation), dict(zip(SEEDS, tests, strict=True)))


def baseline(*its):
    return contender(*its, role=Role.BASELINE)


NOISY = [0.80, 0.81, 0.82, 0.80, 0.81, 0.83]


def test_both_are_chosen_on_validation():
    models = [contender("weak", 0.5, 0.99), contender("strong", 0.7, NOISY)]
    baselines = [baseline("svm", 0.6, 0.75), baseline("knn", 0.4, 0.95)]
    found = compare_baselines([*models, *baselines], "test/micro_f1", "max")
    assert (found.model, found.baseline, found.result) == ("strong", "svm", "beats")
    assert found.paired == compare_paired([0.75] * 6, NOISY)
    assert found.sentence.startswith(
        "The best model, strong, beats the best baseline, svm: test/micro_f1 0.8117 against 0.7500, "
        "difference +0.0617, 95% interval +0.0"
    )
    assert found.sentence.endswith("p = 0.0312 over 6 seeds.")


def test_losing_is_said_as_plainly():
    found = compare_baselines([contender("m", 0.7, NOISY), baseline("svm", 0.1, 0.9)], "test/f", "max")
    assert found.result == "loses to"
    assert found.sentence.startswith("The best model, m, loses to the best baseline, svm: ")
    less = compare_baselines([contender("m", 0.7, NOISY), baseline("svm", 0.1, 0.9)], "test/loss", "min")
    assert less.result == "beats"


def test_what_is_not_decided_is_not_claimed():
    found = compare_baselines([contender("m", 0.7, NOISY), baseline("svm", 0.1, 0.812)], "test/f", "max")
    assert found.result == "undecided"
    assert found.sentence.startswith("Not decided whether the best model, m, beats the best baseline, svm: ")
    one = [
        Contender("m", Role.MODEL, {0: 0.5}, {0: 0.9}),
        Contender("svm", Role.BASELINE, {0: 0.5}, {0: 0.1}),
    ]
    few = compare_baselines(one, "test/f", "max")
    assert few.sentence.endswith("difference +0.8000, p = 1 over 1 seed, which can never reach 0.05.")


def test_only_common_seeds_are_paired():
    model = Contender("m", Role.MODEL, {1: 0.5}, {1: 0.9, 2: 0.8})
    svm = Contender("svm", Role.BASELINE, {2: 0.5}, {2: 0.7, 3: 0.1})
    apart = Contender("svm", Role.BASELINE, {3: 1.0}, {3: 1.0})
    assert compare_baselines([model, svm], "test/f", "max").paired.n == 1
    for contenders in ([model, apart], [svm], [model], []):
        assert compare_baselines(contenders, "test/f", "max") is None


def test_a_setting_with_both_roles_counts_on_both_sides():
    both = contender("plain = found", 0.7, NOISY, Role.MODEL | Role.BASELINE)
    written = contender("as written", 0.6, 0.8)
    found = compare_baselines([both, written], "test/f", "max")
    assert (found.model, found.baseline, found.result) == ("plain = found", "plain = found", "same")
    assert found.sentence == (
        "The best model and the best baseline are the same setting, plain = found: "
        "there is no difference to test."
    )
    assert found.as_dict()["paired"] is None
    against_svm = compare_baselines([both, written, baseline("svm", 0.8, 0.7)], "test/f", "max")
    assert (against_svm.model, against_svm.baseline) == ("plain = found", "svm")
    better = compare_baselines([both, contender("wide", 0.8, 0.9)], "test/f", "max")
    assert (better.model, better.baseline) == ("wide", "plain = found")


def test_figures_of_a_contender():
    score = "knn_best/val/f"
    with_neighbours = {"knn_best/val/f": 0.8, "val/f": 0.1, "knn_best/test/f": 0.7, "test/f": 0.2}
    found = Contender.of(
        "m", Role.MODEL, score, {3: with_neighbours, 4: {**with_neighbours, "knn_best/test/f": math.nan}}
    )
    assert (found.validation, found.test) == ({3: 0.8, 4: 0.8}, {3: 0.7})
    plain = Contender.of("svm", Role.BASELINE, score, {3: {"val/f": 0.6, "test/f": 0.5}})
    assert (plain.validation, plain.test) == ({3: 0.6}, {3: 0.5})


@pytest.mark.parametrize("score", ["val/f", "knn/val/f", "knn_best/val/f"])
def test_a_baseline_has_no_neighbours(score):
    assert figure_name(score, {score: 1.0, "val/f": 0.5}) == score
    assert figure_name(score, {"val/f": 0.5}) == "val/f"
