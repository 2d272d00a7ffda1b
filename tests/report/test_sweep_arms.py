"""Tests of the verdicts of a sweep: which arms they compare, and which trainings they count."""

import math
from dataclasses import replace
from types import SimpleNamespace

import pandas as pd
import pytest
from sweep_reports import report

from mlcl.report.sweep_data import next_command, setting_to_use
from mlcl.results.sweep_arms import (
    ArmSearch,
    Entrant,
    best_seed,
    best_setting,
    only_treated_has_heads,
    sweep_verdicts,
)
from mlcl.results.sweep_result import SweepResult
from mlcl.results.training_result import SettingResult, TrainingResult
from mlcl.significance.arm_errors import SEARCH_DEVIATION
from mlcl.significance.roles import Role
from mlcl.significance.verdict import Conclusion
from mlcl.tracking import State

SCORE = "knn_best/val/accuracy"
BASELINE, CONTROL = Role.BASELINE, Role.BASELINE | Role.CONTROL


def training(seed, val, test, prefix="knn_best/", state=State.COMPLETE, blocks=()):
    name = f"{prefix}test/accuracy"
    metrics = {f"{prefix}val/accuracy": val, name: test}
    return TrainingResult(str(seed), "", state, metrics=metrics, seed=seed, blocks={name: blocks})


def setting(arm, role, *seeds, search=1, name=""):
    name = name or f"{arm} {search}"
    return SettingResult(name, (name,), State.COMPLETE, {}, seeds, name, role, arm=arm, search=search)


def arm(name, role, val, test):
    """Returns an arm of two searches with two seeds each."""
    return [
        setting(name, role, *(training(seed, val, test + seed / 1e5) for seed in seeds), search=search)
        for search, seeds in ((1, (1, 2)), (2, (1001, 1002)))
    ]


def verdicts(*settings, margin=0.001):
    return sweep_verdicts(settings, SCORE, "max", margin=margin, rows=100)


def test_heads_against_control_then_the_best_baseline_by_validation():
    heads, control = arm("heads", Role.MODEL, 0.6, 0.9), arm("control", CONTROL, 0.5, 0.4)
    # svm is better than the control on validation and worse on test.
    svm = setting("svm", BASELINE, training(1, 0.7, 0.3, prefix=""))
    first, second = verdicts(*heads, *control, svm)
    assert (first.question, first.reference.label, first.treated.label) == ("heads", "control", "heads")
    assert (second.question, second.reference.label) == ("baseline", "svm")
    assert (first.treated.searches, first.treated.trainings) == (2, 4)
    assert (first.metric, second.metric) == ("knn_best/test/accuracy", "knn_best/test/accuracy")
    assert math.isclose(first.difference, 0.5)
    worse_svm = setting("svm", BASELINE, training(1, 0.4, 0.3, prefix=""))
    assert verdicts(*heads, *control, worse_svm)[1].reference.label == "svm"  # the first is about the control
    assert verdicts(*heads, *control)[1].reference.label == "control"
    (verdict,) = verdicts(*heads, svm)
    assert verdict.question == "baseline"
    assert verdicts(*heads) == verdicts(*control) == ()


def test_of_several_settings_of_a_search_validation_takes_one():
    better_setting = setting(
        "heads", Role.MODEL, training(1, 0.9, 0.1), training(2, 0.9, 0.2), name="trial 1"
    )
    worse_setting = setting("heads", Role.MODEL, training(1, 0.8, 0.7), training(2, 0.8, 0.7), name="trial 2")
    (heads, _) = verdicts(better_setting, worse_setting, *arm("control", CONTROL, 0.5, 0.4))
    assert math.isclose(heads.treated.mean, 0.15)
    assert best_setting([worse_setting, better_setting], SCORE, "max").name == "trial 1"
    assert best_setting([worse_setting, better_setting], SCORE, "min").name == "trial 2"
    assert best_setting([worse_setting], SCORE, "max", role=BASELINE) is None


def test_failed_trainings_are_left_out_and_blocks_are_counted():
    failed_training = training(3, math.nan, math.nan, state=State.FAILED)
    seeds = [training(seed, 0.6, 0.7 + seed / 100, blocks=(0.7, 0.72, 0.74)) for seed in (1, 2)]
    control = [training(seed, 0.5, 0.6 + seed / 100, blocks=(0.6, 0.63, 0.62)) for seed in (1, 2)]
    verdict, _ = verdicts(
        setting("heads", Role.MODEL, *seeds, failed_training), setting("control", CONTROL, *control)
    )
    assert (verdict.treated.trainings, verdict.rows_counted) == (2, True)
    assert best_seed(setting("heads", Role.MODEL, failed_training, *seeds), SCORE, "max").seed == 1


def test_a_race_says_what_it_picked():
    written_entrant, trial = Entrant("as written", (0.7, 0.72)), Entrant("trial 3", (0.74, 0.76), found=0.8)
    trial_search = ArmSearch(1, 8, (written_entrant, trial), "trial 3", 0.5)
    sentence = "trial 3 0.7500 on 2 fresh seeds, as written 0.7100; fresh seeds keep 50% of its lead"
    assert trial_search.sentence == sentence
    entrants = (Entrant("as written", (0.7,)), Entrant("trial 3", (0.74,), found=0.8))
    lost_sentence = "trial 3 0.7400 on 1 fresh seed, as written 0.7000; fresh seeds keep nothing of its lead"
    assert ArmSearch(1, 8, entrants, "trial 3", -29.0).sentence == lost_sentence
    assert ArmSearch(1, 8, entrants, "trial 3", 7.46).sentence == lost_sentence.replace("nothing", "all")
    written_search = ArmSearch(1, 8, (written_entrant, trial), "as written")
    assert written_search.sentence == "use the job as written: 0.7100 on 2 fresh seeds, trial 3 0.7500"
    assert ArmSearch(1, 8).sentence == ""


@pytest.mark.parametrize(
    ("heads", "svm", "use", "step"),
    [
        (0.9, 0.4, "heads 1", "mlcl export it"), (0.5, 0.4, "control 1", "mlcl sweep JOB SPACE"),
        (0.4, 0.9, "svm 1", "mlcl sweep JOB SPACE"), (0.8, 0.9, "svm 1", "mlcl sweep JOB SPACE"),
    ],
)  # fmt: skip
def test_what_to_use_is_what_no_verdict_says_is_worse(heads, svm, use, step):
    settings = (
        *arm("heads", Role.MODEL, heads, heads), *arm("control", CONTROL, 0.7, 0.7),
        setting("svm", BASELINE, *(training(seed, svm, svm, prefix="") for seed in (1, 2))),
    )  # fmt: skip
    result = SimpleNamespace(
        confirmations=settings, verdicts=verdicts(*settings), fresh_score=SCORE, mode="max", name="it",
        asked=SimpleNamespace(trials=4, seeds=4, searches=2),
    )  # fmt: skip
    result.recommended = SweepResult.recommended.fget(result)
    data = SimpleNamespace(result=result, best=None)
    assert setting_to_use(data) == use
    assert next_command(data)[1].startswith(step)


def test_one_search_of_an_arm_has_the_error_of_a_search_unless_its_settings_were_given():
    def one_search(name, role, test):
        seeds = [training(seed, 0.5, test + seed / 1e4) for seed in (1, 2, 3)]
        return setting(name, role, *seeds)

    settings = [one_search("heads", Role.MODEL, 0.52), one_search("control", CONTROL, 0.5)]
    verdict, _ = verdicts(*settings)
    assert (verdict.answer, verdict.search_deviation) == (Conclusion.CANNOT_TELL, SEARCH_DEVIATION)
    given_verdict, _ = sweep_verdicts(
        settings, SCORE, "max", margin=0.001, rows=100, given={"heads", "control"}
    )
    assert (given_verdict.answer, given_verdict.search_deviation, given_verdict.single) == (
        Conclusion.HELPS,
        0.0,
        (),
    )
    far_verdict, _ = verdicts(one_search("heads", Role.MODEL, 0.6), settings[1])
    assert far_verdict.answer is Conclusion.HELPS
    arguments = SimpleNamespace(trials=4, seeds=2, searches=1)
    result = SimpleNamespace(verdicts=(verdict,), name="it", asked=arguments)
    command = "mlcl sweep JOB SPACE --name it --trials 12 --seeds 6 --searches 3"
    assert next_command(SimpleNamespace(result=result)) == ("Two more searches", command)


@pytest.mark.parametrize(
    ("heads", "control", "question"),
    [
        ({"objective.heads.a.loss": "supcon"}, {"train.lr": 0.1}, "heads"),
        ({"train.lr": 0.2}, {"train.lr": 0.1}, "settings"),
        ({"objective.heads.a.loss": "supcon"}, {"objective.heads.b.loss": "supcon"}, "settings"),
        ({}, {}, "heads"),  # a sweep that has not written its parameters
    ],
)
def test_a_verdict_speaks_of_heads_where_they_are_what_the_control_lacks(heads, control, question):
    settings = [
        replace(arm_setting, params=params)
        for name, role, params in (("heads", Role.MODEL, heads), ("control", CONTROL, control))
        for arm_setting in arm(name, role, 0.5, 0.5)
    ]
    assert verdicts(*settings)[0].question == question


def test_the_margin_of_accuracy_is_none_of_a_loss():
    def margin(score):
        name = score.replace("val/", "test/")
        settings = [
            SettingResult(
                label, (label,), State.COMPLETE, {}, tuple(
                    TrainingResult(str(k), "", State.COMPLETE, metrics={score: value, name: value}, seed=k)
                    for k, value in enumerate(values)
                ), label, role, arm=label,
            )
            for label, role, values in (
                ("heads", Role.MODEL, (0.5001, 0.5003)), ("control", CONTROL, (0.5, 0.5002)))
        ]  # fmt: skip
        job = {"evaluation": {"margin": 0.01}}
        result = report(confirmations=tuple(settings), fresh_score=score, mode="min", job=job)
        return result.verdicts[0].margin

    assert (margin("val/accuracy"), margin("val/loss")) == (0.01, 0.0)


def test_the_best_trial_is_to_use_until_a_fresh_seed_is_complete():
    def named(*states):
        confirmation = pd.DataFrame({"setting": ["as written"] * len(states), "state": states})
        result = SimpleNamespace(recommended=None)
        best = {"setting": "trial 0"}
        confirmed_labels = {"trial 0": "as written"}
        return setting_to_use(
            SimpleNamespace(
                result=result, best=best, confirmed_names=confirmed_labels, confirmation=confirmation
            )
        )

    assert named(State.FAILED) == "trial 0"
    assert named(State.FAILED, State.COMPLETE) == "as written"


def test_a_head_of_weight_0_is_no_head():
    weight, tau = "objective.heads.a.weight", {"objective.heads.a.temperature": 0.1}
    assert only_treated_has_heads({weight: 0, **tau}, {weight: "0.5", **tau})
    assert not only_treated_has_heads({weight: 0.1, **tau}, {weight: 0.5, **tau})
    assert only_treated_has_heads({"train.lr": 0.1}, tau)


@pytest.mark.parametrize(("searches", "option"), [(3, ""), (1, " --searches 1")])
def test_the_next_command_has_the_searches_that_were_asked_for(searches, option):
    arguments = SimpleNamespace(trials=6, seeds=3, searches=searches)
    verdict = SimpleNamespace(answer=Conclusion.HURTS, search_deviation=0.0, decider=None)
    result = SimpleNamespace(verdicts=(verdict,), name="it", asked=arguments)
    command = next_command(SimpleNamespace(result=result))[1]
    assert command == f"mlcl sweep JOB SPACE --name it --trials 12 --seeds 3{option}"
    arguments.seeds = 0
    command = next_command(SimpleNamespace(result=result))[1]
    assert command == f"mlcl sweep JOB SPACE --name it --trials 6 --seeds 5{option}"
