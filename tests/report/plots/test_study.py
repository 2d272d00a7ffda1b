"""A search rebuilt as an Optuna study."""

import warnings

import optuna
import pytest
from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.exceptions import ExperimentalWarning
from optuna.trial import TrialState

from mlcl.config import Goal
from mlcl.report.plots.study import quiet, study_of

TAU = "objective.heads.section.temperature"


@pytest.mark.parametrize("mode", ["max", "min"])
def test_best_is_the_frames_best(search_of, mode):
    data = search_of(goals=(Goal("val/accuracy", mode),))
    study = study_of(data)
    best = None
    for _, row in data.search.iterrows():
        better = best is None or (row["score"] > best["score"]) == (mode == "max")
        if row["state"] == "COMPLETE" and better:
            best = row
    assert study.best_trial.number == best["number"] == data.best["number"]
    assert study.best_value == best["score"]
    assert study.best_params["section.temperature"] == best[TAU]


def test_states_and_numbers_are_the_trials_own(search_of):
    data = search_of(change=lambda frame: frame.drop(index=[0, 5]))
    trials = study_of(data).trials
    rows = {int(row["number"]): row for _, row in data.search.iterrows()}
    for trial in trials:
        expected = rows[trial.number]["state"] if trial.number in rows else "FAIL"
        assert trial.state.name == expected
    assert len(trials) == 20


@pytest.mark.parametrize("state", ["FAILED", "STOPPED", "BUDGET", "RUNNING"])
def test_what_did_not_end_well_counts_as_failed(search_of, state):
    data = search_of(3, change=lambda frame: frame.assign(state=[state, "COMPLETE", "COMPLETE"]))
    assert [trial.state for trial in study_of(data).trials] == [TrialState.FAIL, *[TrialState.COMPLETE] * 2]


def test_complete_without_a_figure_counts_as_failed(search_of):
    data = search_of(3, change=lambda frame: frame.assign(score=[None, 0.5, 0.6]))
    assert study_of(data).trials[0].state == TrialState.FAIL


def test_distributions_follow_the_space_and_the_values(search_of):
    data = search_of()
    found = study_of(data).trials[0].distributions
    assert found["section.temperature"] == FloatDistribution(0.05, 1.0, log=True)
    assert found["encoder.name"] == CategoricalDistribution(("cnn_text", "transformer"))
    assert found["encoder.width"] == IntDistribution(32, 256)
    weights = data.search["objective.heads.section.weight"]
    assert found["section.weight"] == FloatDistribution(weights.min(), weights.max())


def test_values_outside_the_latest_space_widen_it(search_of):
    def change(frame):
        frame.loc[1, TAU] = 3.0
        return frame

    found = study_of(search_of(change=change)).trials[1].distributions["section.temperature"]
    assert found == FloatDistribution(0.05, 3.0, log=True)


def test_conditional_key_is_in_its_trials_alone(search_of):
    data = search_of()
    for trial, width in zip(study_of(data).trials, data.search["encoder.width"], strict=True):
        assert ("encoder.width" in trial.params) == (trial.number % 2 == 0)
        assert trial.params.get("encoder.width", -1) == (width if trial.number % 2 == 0 else -1)


def test_true_and_false_are_words(search_of):
    data = search_of(4, change=lambda frame: frame.assign(**{"encoder.name": [True, False, True, True]}))
    assert [trial.params["encoder.name"] for trial in study_of(data).trials] == [
        "True",
        "False",
        "True",
        "True",
    ]


def test_names_and_words_are_written_for_the_library(search_of):
    data = search_of(4, change=lambda frame: frame.assign(**{"encoder.name": ["$a$", "b", "b", "b"]}))
    trial = study_of(data, text=str.upper).trials[0]
    assert trial.params["ENCODER.NAME"] == "$A$"


def test_several_goals_give_the_pareto_front(search_of):
    data = search_of()
    goals = {"score": "max", "val/loss": "min"}
    front = {trial.number for trial in study_of(data, goals).best_trials}
    points = [(row["score"], row["val/loss"], row["number"]) for _, row in data.complete.iterrows()]
    alone = {
        n for s, v, n in points if not any(s2 >= s and v2 <= v and (s2, v2) != (s, v) for s2, v2, _ in points)
    }
    assert front == alone


def test_quiet_keeps_verbosity_and_other_warnings():
    before = optuna.logging.get_verbosity()
    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always")
        with quiet():
            assert optuna.logging.get_verbosity() == optuna.logging.ERROR
            warnings.warn("young", ExperimentalWarning, stacklevel=1)
            warnings.warn("other", UserWarning, stacklevel=1)
    assert [str(warning.message) for warning in heard] == ["other"]
    assert optuna.logging.get_verbosity() == before
