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
    fields = {"score": SCORE, "mode": "max", "sweep": "s", "arm": arm, "search": search, "role": role}
    return ComparedSetting(label, f"s:{label}", runs, optional=True, **fields)


@pytest.fixture
def settings():
    """Returns settings of two searches per arm, each with the job as written and a better trial."""
    return [
        setting(arm, search, f"{arm} {name} {search}", 1000 * search + offset, score)
        for arm in ("heads", "control")
        for search in (1, 2)
        for offset, name, score in ((1, "as written", 0.3), (2, "found", 0.5))
    ]


def test_an_arm_has_the_best_setting_of_each_search_and_the_whole_control_is_first(settings):
    control, *other_settings = join_searches(settings)
    assert (control.label, control.searches) == ("control", ((1002,), (2002,)))
    assert control.picks == ("control found 1", "control found 2")
    (heads,) = [other for other in other_settings if other.label == "heads"]
    assert heads.searches == ((1002,), (2002,))
    other_labels = {f"{arm} as written {search}" for arm in ("heads", "control") for search in (1, 2)}
    assert {other.label for other in other_settings} == {"heads"} | other_labels


def test_joined_arms_are_not_joined_with_the_settings_that_are_left(settings):
    joined_settings = join_searches(settings)
    assert join_searches(joined_settings) == joined_settings


@pytest.mark.parametrize("mode", ["max", "min"])
@pytest.mark.parametrize("metrics", [{}, {SCORE: math.nan}])
def test_a_setting_without_a_score_is_not_the_best(mode, metrics):
    scored_setting, base_setting = (
        setting("heads", 1, "known", 1001, 0.5),
        setting("heads", 1, "without", 1002, 0.5),
    )
    unscored_setting = replace(base_setting, runs={1002: replace(base_setting.runs[1002], metrics=metrics)})
    joined_settings = join_searches(
        [replace(arm_setting, mode=mode) for arm_setting in (unscored_setting, scored_setting)]
    )
    assert {arm_setting.label: arm_setting.picks for arm_setting in joined_settings} == {
        "heads": ("known",),
        "without": (),
    }


def test_the_first_word_stays_the_reference_before_the_control_of_another_sweep(settings):
    first = replace(setting("heads", 1, "mine", 7, 0.1), sweep="other", optional=False)
    labels = [arm_setting.label for arm_setting in join_searches([first, *settings])]
    assert labels[:2] == ["mine", "control"]
