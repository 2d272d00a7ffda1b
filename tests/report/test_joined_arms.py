"""Tests that `mlcl compare SWEEP` joins the picks of each arm's searches to one setting."""

import math
from dataclasses import replace

import pytest

from mlcl.results.compared_setting import ComparedSetting, SeedRun, join_searches
from mlcl.significance.roles import Role

SCORE = "val/accuracy"


def setting(arm, search, label, seed, score):
    """Returns a confirmed setting of a sweep that was named as a whole."""
    runs = {seed: SeedRun(f"{label}-{seed}", seed, "data", {SCORE: score})}
    role = Role.CONTROL if arm == "control" else Role.MODEL
    how = {"score": SCORE, "mode": "max", "sweep": "s", "arm": arm, "search": search, "role": role}
    return ComparedSetting(label, f"s:{label}", runs, optional=True, **how)


@pytest.fixture
def settings():
    """Returns settings of two searches per arm, each with the job as written and a better trial."""
    return [
        setting(arm, search, f"{arm} {name} {search}", 1000 * search + extra, score)
        for arm in ("heads", "control")
        for search in (1, 2)
        for extra, name, score in ((1, "as written", 0.3), (2, "found", 0.5))
    ]


def test_an_arm_has_the_best_setting_of_each_search_and_the_whole_control_is_first(settings):
    control, *others = join_searches(settings)
    assert (control.label, control.searches) == ("control", ((1002,), (2002,)))
    assert control.picks == ("control found 1", "control found 2")
    (heads,) = [each for each in others if each.label == "heads"]
    assert heads.searches == ((1002,), (2002,))
    rest = {f"{arm} as written {search}" for arm in ("heads", "control") for search in (1, 2)}
    assert {each.label for each in others} == {"heads"} | rest


def test_joined_arms_are_not_joined_with_the_settings_that_are_left(settings):
    joined = join_searches(settings)
    assert join_searches(joined) == joined


@pytest.mark.parametrize("mode", ["max", "min"])
@pytest.mark.parametrize("metrics", [{}, {SCORE: math.nan}])
def test_a_setting_without_a_score_is_not_the_best(mode, metrics):
    known, its = setting("heads", 1, "known", 1001, 0.5), setting("heads", 1, "without", 1002, 0.5)
    without = replace(its, runs={1002: replace(its.runs[1002], metrics=metrics)})
    joined = join_searches([replace(each, mode=mode) for each in (without, known)])
    assert {each.label: each.picks for each in joined} == {"heads": ("known",), "without": ()}


def test_the_first_word_stays_the_reference_before_the_control_of_another_sweep(settings):
    first = replace(setting("heads", 1, "mine", 7, 0.1), sweep="other", optional=False)
    labels = [each.label for each in join_searches([first, *settings])]
    assert labels[:2] == ["mine", "control"]
