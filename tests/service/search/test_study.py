"""What a study is told, and that it can be told again."""

import math
from types import SimpleNamespace

import optuna
import pytest
from optuna.distributions import FloatDistribution
from optuna.study import StudyDirection
from optuna.trial import TrialState
from study_states import differences

from mlcl.config import Goal, SearchConfig
from mlcl.errors import UserError
from mlcl.service.search.study import add_done, ask, open_study, reopen, tell
from mlcl.service.search.study_storage import open_storage
from mlcl.tracking import State

X = {"x": FloatDistribution(0, 1)}


def space(*modes):
    goals = tuple(Goal(f"val/{mode}", mode) for mode in modes)
    return SimpleNamespace(search=SearchConfig(sampler="random"), goals=goals)


@pytest.fixture(params=["memory", "journal", "sqlite"])
def storage(request, tmp_path):
    if request.param == "memory":
        return optuna.storages.InMemoryStorage()
    return open_storage(tmp_path / "j" if request.param == "journal" else f"sqlite:///{tmp_path}/s.db")


@pytest.fixture
def study(storage):
    return open_study(storage, "sweep", space("max"))


@pytest.fixture
def pair(storage):
    return open_study(storage, "pair", space("max", "min"))


def drawn(study, known=()):
    trial = ask(study, known)
    trial.suggest_float("x", 0, 1)
    return trial.number


def test_complete_with_its_rungs_and_attributes(study):
    number = drawn(study)
    tell(study, number, State.COMPLETE, [0.7], [(1, 0.2), (3, 0.5)], {"run": "a", "epochs": 9})
    (trial,) = study.trials
    assert (trial.state, trial.value) == (TrialState.COMPLETE, 0.7)
    assert trial.intermediate_values == {1: 0.2, 3: 0.5}
    assert trial.user_attrs == {"run": "a", "epochs": 9}


def test_pruned_has_the_value_of_its_last_rung(study):
    tell(study, drawn(study), State.PRUNED, None, [(1, 0.2), (3, 0.5)], {})
    assert (study.trials[0].state, study.trials[0].value) == (TrialState.PRUNED, 0.5)


@pytest.mark.parametrize(
    ("state", "values"), [(State.FAILED, None), (State.COMPLETE, [math.nan]), (State.COMPLETE, [math.inf])]
)
def test_a_failure_or_no_number_is_never_a_score(study, state, values):
    tell(study, drawn(study), state, values, [(1, 0.2), (3, math.nan)], {})
    (trial,) = study.trials
    assert (trial.state, trial.value, trial.intermediate_values) == (TrialState.FAIL, None, {1: 0.2})


def test_several_goals(pair):
    tell(pair, drawn(pair), State.COMPLETE, [0.7, 0.3], [(1, 0.2)], {})
    tell(pair, drawn(pair), State.PRUNED, None, [(1, 0.2)], {})
    tell(pair, drawn(pair), State.COMPLETE, [0.7, math.nan], [], {})
    assert [trial.state for trial in pair.trials] == [TrialState.COMPLETE, TrialState.PRUNED, TrialState.FAIL]
    assert [trial.values for trial in pair.trials] == [[0.7, 0.3], None, None]
    assert not any(trial.intermediate_values for trial in pair.trials)


@pytest.mark.parametrize("state", [State.STOPPED, State.BUDGET])
def test_what_was_stopped_waits_with_its_settings_and_goes_on(study, state):
    number = drawn(study)
    params = study.trials[number].params
    for _ in range(2):
        tell(study, number, state, None, [(1, 0.2)], {"epoch": 1})
        assert study.trials[number].state is TrialState.WAITING
    assert drawn(study, known=[number]) == number + 1
    for _ in range(2):
        reopen(study, number)
        assert study.trials[number].state is TrialState.RUNNING
    tell(study, number, State.COMPLETE, [0.5], [(1, 0.2), (2, 0.4)], {"epoch": 2})
    trial = study.trials[number]
    assert (trial.params, trial.value, trial.user_attrs) == (params, 0.5, {"epoch": 2})
    assert trial.intermediate_values == {1: 0.2, 2: 0.4}


def test_one_that_waits_may_be_told_its_end(study):
    number = drawn(study)
    tell(study, number, State.STOPPED, None, [], {})
    tell(study, number, State.COMPLETE, [0.5], [], {})
    assert study.trials[number].state is TrialState.COMPLETE


def test_running_gets_its_attributes_and_goes_on(study):
    number = drawn(study)
    tell(study, number, State.RUNNING, None, [(1, 0.2)], {"run": "a"})
    (trial,) = study.trials
    assert (trial.state, trial.user_attrs) == (TrialState.RUNNING, {"run": "a"})


@pytest.mark.parametrize(
    ("state", "values"), [(State.COMPLETE, [0.5]), (State.PRUNED, None), (State.FAILED, None)]
)
def test_told_twice_is_told_once(study, state, values):
    number = drawn(study)
    tell(study, number, state, values, [(1, 0.2)], {"run": "a"})
    before = study.trials
    tell(study, number, state, values, [(1, 0.2), (2, 0.9)], {"run": "b"})
    assert study.trials == before


@pytest.mark.parametrize("other", [State.RUNNING, State.PRUNED, State.FAILED, State.STOPPED])
def test_what_has_finished_cannot_be_told_otherwise(study, other):
    number = drawn(study)
    tell(study, number, State.COMPLETE, [0.5], [], {})
    with pytest.raises(RuntimeError, match=f"trial {number} is told .* was told COMPLETE"):
        tell(study, number, other, None, [], {})
    with pytest.raises(RuntimeError):
        reopen(study, number)


@pytest.mark.parametrize("calls", range(1, 6))
def test_a_kill_between_two_writes_is_made_good(storage, monkeypatch, calls):
    study = open_study(storage, "sweep", space("max"))
    number = drawn(study)
    left = iter(range(calls))

    def mortal(write):
        def wrapped(*args, **kwargs):
            if next(left, None) is None:
                raise KeyboardInterrupt
            return write(*args, **kwargs)

        return wrapped

    end = (number, State.PRUNED, None, [(1, 0.2), (3, 0.5)], {"run": "a", "epochs": 3})
    names = ("set_trial_intermediate_value", "set_trial_user_attr", "set_trial_state_values")
    with monkeypatch.context() as patch:
        for name in names:
            patch.setattr(study._storage, name, mortal(getattr(study._storage, name)))
        with pytest.raises(KeyboardInterrupt):
            tell(study, *end)
    again = open_study(storage, "sweep", space("max"))
    tell(again, *end)
    (trial,) = again.trials
    assert (trial.state, trial.value) == (TrialState.PRUNED, 0.5)
    assert trial.intermediate_values == {1: 0.2, 3: 0.5}
    assert trial.user_attrs == {"run": "a", "epochs": 3}


def test_a_trial_that_nobody_knows_is_handed_out_again(study):
    first = ask(study, ())
    x = first.suggest_float("x", 0, 1)
    known = ask(study, [first.number])
    assert known.number == 1
    again = ask(study, [known.number])
    assert (again.number, again.suggest_float("x", 0, 1)) == (0, x)
    assert ask(study, [0, 1]).number == 2


def test_a_trial_that_was_enqueued_is_handed_out(study):
    study.enqueue_trial({"x": 0.25})
    trial = ask(study, ())
    assert (trial.number, trial.suggest_float("x", 0, 1)) == (0, 0.25)


def test_a_trial_from_elsewhere_is_added_once(study):
    complete = (study, {"x": 0.5}, X, State.COMPLETE, [0.7], [(1, 0.2)], {"from": "sweep-1/4"})
    assert add_done(*complete) == 0
    assert add_done(*complete) == 0
    pruned = (study, {"x": 0.5}, X, State.PRUNED, None, [(1, 0.2), (3, 0.3)], {"from": "sweep-1/5"})
    assert add_done(*pruned) == 1
    failed = (study, {"x": 0.5}, X, State.FAILED, None, [], {})
    assert [add_done(*failed), add_done(*failed)] == [2, 3]
    assert [trial.value for trial in study.trials] == [0.7, 0.3, None, None]
    assert study.trials[0].intermediate_values == {1: 0.2}
    assert study.trials[1].intermediate_values == {1: 0.2, 3: 0.3}
    assert ask(study, ()).number == 4


def test_a_trial_from_elsewhere_with_several_goals(pair):
    assert add_done(pair, {"x": 0.5}, X, State.COMPLETE, [0.7, 0.1], [(1, 0.2)], {"from": "a"}) == 0
    assert pair.trials[0].values == [0.7, 0.1]
    with pytest.raises(ValueError, match="1 values for 2 goals"):
        add_done(pair, {"x": 0.5}, X, State.COMPLETE, [0.7], [], {"from": "b"})


def test_differences(study):
    states = [State.COMPLETE, State.PRUNED, State.FAILED, State.STOPPED, State.BUDGET, State.RUNNING]
    for state in states:
        values = [0.5] if state is State.COMPLETE else None
        tell(study, drawn(study, known=range(6)), state, values, [], {})
    expected = dict(enumerate(states))
    assert differences(study, expected) == []
    del expected[5]
    assert differences(study, expected | {1: State.RUNNING, 3: State.COMPLETE, 9: State.FAILED}) == [
        "trial 1: RUNNING in the sweep, PRUNED in the study",
        "trial 3: COMPLETE in the sweep, WAITING in the study",
        "trial 5: missing in the sweep, RUNNING in the study",
        "trial 9: FAILED in the sweep, missing in the study",
    ]


def test_the_goals_are_the_studys_for_good(storage):
    study = open_study(storage, "sweep", space("max", "min"))
    assert study.directions == [StudyDirection.MAXIMIZE, StudyDirection.MINIMIZE]
    assert open_study(storage, "sweep", space("max", "min")).study_name == "sweep"
    with pytest.raises(UserError, match=r"--study.*sweep has other goals.*maximize, minimize"):
        open_study(storage, "sweep", space("min"))


def test_studies_of_one_storage_do_not_mix(storage):
    first, second = (open_study(storage, name, space("max")) for name in ("a", "b"))
    drawn(first)
    tell(second, drawn(second), State.COMPLETE, [0.5], [], {})
    assert differences(first, {0: State.RUNNING}) == []
    assert differences(second, {0: State.COMPLETE}) == []
