"""Draws depend on the study, not on the process."""

from types import SimpleNamespace

import optuna
import pytest
from optuna.trial import TrialState

from mlcl.config import Goal, SearchConfig
from mlcl.errors import UserError
from mlcl.service.search.sampler import build_sampler
from mlcl.service.search.study import ask, open_study, tell
from mlcl.service.search.study_storage import open_storage
from mlcl.tracking import State

SAMPLERS = ["tpe", "gp", "cmaes", "random", "brute_force"]
ONE = (Goal("val/accuracy", "max"),)
TWO = (*ONE, Goal("val/loss", "min"))


def space(sampler, seed=0, goals=ONE):
    return SimpleNamespace(search=SearchConfig(sampler=sampler, seed=seed, startup=4), goals=goals)


def parameters(sampler):
    """The draws of a trial in their order; the last one is there for some choices only."""
    yield lambda trial: trial.suggest_categorical("choice", (0, 1, 2))
    yield lambda trial: trial.suggest_int("whole", 1, 9)
    if sampler != "brute_force":
        yield lambda trial: trial.suggest_float("rate", 1e-4, 1e-1, log=True)
        yield lambda trial: trial.suggest_float("share", 0.0, 1.0)
    yield lambda trial: trial.params["choice"] > 0 and trial.suggest_int("depth", 1, 4)


def finish(study, trial, goals=ONE):
    score = sum(float(value) for value in trial.params.values()) % 1.7
    if trial.number % 5 == 3:
        tell(study, trial.number, State.PRUNED, None, [(1, score)], {})
    elif trial.number % 7 == 5:
        tell(study, trial.number, State.FAILED, None, [], {})
    else:
        tell(study, trial.number, State.COMPLETE, [score, -score][: len(goals)], [(1, score / 2)], {})


def in_one_go(storage, sampler, count, **how):
    study = open_study(storage, "sweep", space(sampler, **how))
    for _ in range(count):
        trial = ask(study, ())
        for draw in parameters(sampler):
            draw(trial)
        finish(study, trial, how.get("goals", ONE))
    return [trial.params for trial in study.trials]


def with_kills(where, sampler, count, every_draw, **how):
    """The same with a new process, so to speak, before each trial or before each single draw."""
    for number in range(count):
        study = open_study(open_storage(where), "sweep", space(sampler, **how))
        trial = ask(study, range(number))
        for draw in parameters(sampler):
            draw(trial)
            if every_draw:
                study = open_study(open_storage(where), "sweep", space(sampler, **how))
                trial = ask(study, range(number))
                assert trial.number == number
        finish(study, trial, how.get("goals", ONE))
    return [trial.params for trial in study.trials]


@pytest.mark.parametrize("every_draw", [False, True])
@pytest.mark.parametrize("sampler", SAMPLERS)
def test_a_restart_changes_no_draw(tmp_path, sampler, every_draw):
    whole = in_one_go(open_storage(tmp_path / "whole"), sampler, 14)
    assert with_kills(tmp_path / "broken", sampler, 14, every_draw) == whole
    assert len({str(params) for params in whole}) == 14


@pytest.mark.parametrize("sampler", ["tpe", "gp", "random"])
def test_a_restart_changes_no_draw_for_several_goals(tmp_path, sampler):
    whole = in_one_go(open_storage(tmp_path / "whole"), sampler, 8, goals=TWO)
    assert with_kills(tmp_path / "broken", sampler, 8, False, goals=TWO) == whole


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_the_kind_of_storage_changes_no_draw(tmp_path, sampler):
    memory = in_one_go(optuna.storages.InMemoryStorage(), sampler, 8)
    assert in_one_go(open_storage(f"sqlite:///{tmp_path}/study.db"), sampler, 8) == memory
    assert in_one_go(optuna.storages.InMemoryStorage(), sampler, 8, seed=1) != memory


@pytest.mark.parametrize("sampler", ["tpe", "cmaes", "random"])
def test_trials_that_run_or_wait_change_no_draw(sampler):
    study = open_study(optuna.storages.InMemoryStorage(), "sweep", space(sampler))
    first = in_one_go(study._storage, sampler, 8)
    alone = ask(study, ())
    expected = [draw(alone) for draw in parameters(sampler)]
    study = open_study(optuna.storages.InMemoryStorage(), "sweep", space(sampler))
    assert in_one_go(study._storage, sampler, 6) == first[:6]
    for number in (6, 7):
        trial = ask(study, ())
        for draw in parameters(sampler):
            draw(trial)
        assert trial.number == number
        finish(study, trial)
    running = study._storage.create_new_trial(study._study_id)
    later = [study._storage.create_new_trial(study._study_id) for _ in range(2)]
    for trial_id in later:
        other = optuna.Trial(study, trial_id)
        for draw in parameters(sampler):
            draw(other)
    study._storage.set_trial_state_values(later[0], TrialState.WAITING)
    trial = optuna.Trial(study, running)
    assert [draw(trial) for draw in parameters(sampler)] == expected


def test_parallel_trials_of_the_gaussian_process_keep_their_distance():
    study = open_study(optuna.storages.InMemoryStorage(), "sweep", space("gp"))
    in_one_go(study._storage, "gp", 6)
    drawn = []
    for number in range(6, 9):
        trial = ask(study, range(number))
        drawn.append([draw(trial) for draw in parameters("gp")])
    assert len({tuple(settings) for settings in drawn}) == 3


def test_a_half_drawn_trial_is_completed_from_the_same_joint_draw():
    study = open_study(optuna.storages.InMemoryStorage(), "sweep", space("tpe"))
    in_one_go(study._storage, "tpe", 8)
    trial = ask(study, range(8))
    whole = ask(study, range(9))
    draws = list(parameters("tpe"))[:4]
    draws[0](trial)
    expected = dict(trial.relative_params)
    for draw in draws:
        draw(whole)
    finish(study, whole)
    again = ask(study, range(8))
    for draw in draws:
        draw(again)
    assert again.number == 8
    assert expected.items() >= again.params.items()


def test_brute_force_visits_everything_once_and_ends_quietly():
    study = open_study(optuna.storages.InMemoryStorage(), "sweep", space("brute_force"))
    seen = []
    for _ in range(6):
        trial = ask(study, ())
        seen.append((trial.suggest_int("a", 0, 2), trial.suggest_categorical("b", (0, 1))))
        tell(study, trial.number, State.COMPLETE, [0.5], [], {})
    assert sorted(seen) == [(a, b) for a in range(3) for b in range(2)]


def test_cmaes_refuses_two_goals():
    with pytest.raises(UserError, match=r"search\.sampler.*val/accuracy, val/loss"):
        build_sampler(space("cmaes").search, TWO)


def test_cmaes_follows_its_metric_and_says_nothing(caplog):
    study = open_study(optuna.storages.InMemoryStorage(), "sweep", space("cmaes"))
    for _ in range(80):
        trial = ask(study, ())
        x, y = trial.suggest_float("x", 0, 1), trial.suggest_float("y", 0, 1)
        trial.suggest_categorical("choice", (0, 1))
        tell(study, trial.number, State.COMPLETE, [-((x - 0.7) ** 2) - (y - 0.2) ** 2], [], {})
    late = [trial.value for trial in study.trials[-20:]]
    assert sum(late) / 20 > -0.02
    assert not caplog.records
