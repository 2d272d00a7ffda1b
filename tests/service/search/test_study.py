"""Tests of the study built from a ledger's entries, of the trials drawn from it, and of its copy."""

import json
import math
from dataclasses import replace
from types import SimpleNamespace

import optuna
import pytest
from builders import tiny_job
from ledgers import new_ledger
from optuna.distributions import FloatDistribution, distribution_to_json
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend
from optuna.trial import TrialState
from sweeps import World

from mlcl.config import Goal, SearchConfig, flatten
from mlcl.config.space.domains import Choice, Float, Int
from mlcl.config.space.keys import Term
from mlcl.config.space.space import Parameter, Space
from mlcl.errors import UserError
from mlcl.service.engine.entries import Cost, EarlierTrial, End, Entry, SpaceVersion, Training
from mlcl.service.engine.ledger import Ledger
from mlcl.service.search.sampling import distributions
from mlcl.service.search.study import (
    BEST,
    LEARNT,
    SeededSampler,
    build_study,
    draw_trial,
    trials_to_learn,
)
from mlcl.service.search.study_copy import write_studies
from mlcl.tracking import State

ACCURACY, LOSS = Goal("val/accuracy", "max"), Goal("val/loss", "min")


def space(sampler, goals=(ACCURACY,), seed=0):
    """Returns a space of every kind of parameter, one of which exists for some choices only."""
    parameters = [Parameter("choice", Choice((0, 1, 2))), Parameter("whole", Int(1, 9))]
    if sampler != "brute_force":
        parameters += [Parameter("rate", Float(1e-4, 1e-1, log=True)), Parameter("share", Float(0.0, 1.0))]
    parameters.append(Parameter("depth", Int(1, 4), (Term("choice", (1, 2)),)))
    search = SearchConfig(sampler=sampler, seed=seed, startup=4)
    return Space(tuple(parameters), {}, search, tuple(goals), goals[0])


def next_start(version, trials, starts):
    """Returns the first start that no trial has tried, as the searches of a sweep do."""
    tried_params = [trial.params for trial in (*version.kept.values(), *trials)]
    return next((point for point in starts if point not in tried_params), None)


class Search:
    """A search in a ledger. With `restarts`, the ledger is read anew before each draw."""

    def __init__(self, folder, its, restarts=False, starts=()):
        self.folder, self.space = folder / "sweeps" / "id", its
        self.restarts, self.starts, self.ledger = restarts, starts, new_ledger(self.folder)
        space_distributions = {
            name: distribution_to_json(distribution) for name, distribution in distributions(its).items()
        }
        self.ledger.open_version(
            SpaceVersion(0, "", "", space_distributions, tuple(g.mode for g in its.goals), {}, {})
        )

    def draw(self):
        """Draws one more trial and records it as running."""
        if self.restarts:
            self.ledger = Ledger(self.folder)
        (version,), trials = self.ledger.versions(), self.ledger.trials()
        known_trials = trials_to_learn(self.ledger, self.space, version)
        start = next_start(version, trials, self.starts)
        settings, study_trial = draw_trial(self.space, version, known_trials, len(trials), start)
        training = Training(f"t{len(trials)}", "", {}, settings, number=len(trials))
        return self.ledger.open(
            replace(training, params=study_trial.params, system_attrs=study_trial.system_attrs)
        )

    def close(self, entry):
        """Closes a trial as complete, pruned or failed, depending on its number."""
        score = sum(float(value) for value in entry.params.values()) % 1.7
        self.ledger.append("value", key=entry.key, epoch=1, score=score / 2)
        state = {3: State.PRUNED, 2: State.FAILED}.get(entry.number % 5, State.COMPLETE)
        values = [score, -score][: len(self.space.goals)] if state is State.COMPLETE else []
        self.ledger.close(entry.key, End(state, score=score, values=values))

    def run(self, count):
        """Draws and closes `count` trials, one after the other, and returns the points of all trials."""
        for _ in range(count):
            self.close(self.draw())
        return [entry.params for entry in self.ledger.trials()]


ONE, TWO = (ACCURACY,), (ACCURACY, LOSS)


@pytest.mark.parametrize(
    ("sampler", "goals", "count"),
    [
        ("tpe", ONE, 12), ("tpe", TWO, 8), ("gp", ONE, 8), ("gp", TWO, 7), ("random", ONE, 8),
        ("cmaes", ONE, 26),  # reaches the third population
        ("brute_force", ONE, 12), ("brute_force", TWO, 8),
    ],
)  # fmt: skip
def test_a_restart_before_each_trial_changes_no_draw(tmp_path, sampler, goals, count):
    expected = Search(tmp_path / "whole", space(sampler, goals)).run(count)
    assert Search(tmp_path / "broken", space(sampler, goals), restarts=True).run(count) == expected
    assert Search(tmp_path / "other", space(sampler, goals, seed=1)).run(8) != expected[:8]


@pytest.mark.parametrize("sampler", ["tpe", "cmaes", "random"])
def test_trials_that_run_or_were_stopped_change_no_draw(tmp_path, sampler):
    lone_search, parallel_search = (Search(tmp_path / name, space(sampler)) for name in ("alone", "beside"))
    for search in (lone_search, parallel_search):
        search.run(12)
    running_trial = parallel_search.draw()
    assert lone_search.draw().params == running_trial.params
    parallel_search.ledger.close(running_trial.key, End(State.STOPPED))
    lone_search.ledger.close("t12", End(State.FAILED))
    assert lone_search.draw().params == parallel_search.draw().params


def test_parallel_trials_of_the_gaussian_process_keep_their_distance(tmp_path):
    search = Search(tmp_path / "sweep", space("gp"))
    search.run(6)
    assert len({str(search.draw().params) for _ in range(3)}) == 3


@pytest.mark.parametrize("parallel", [1, 6])
def test_brute_force_visits_everything_once(tmp_path, parallel):
    base_space = space("brute_force")
    search = Search(
        tmp_path / "sweep",
        replace(base_space, parameters=(base_space.parameters[0], base_space.parameters[2])),
    )
    for _ in range(9 // parallel):
        for entry in [search.draw() for _ in range(parallel)]:
            search.close(entry)
    for _ in range(9 % parallel):
        search.ledger.close(search.draw().key, End(State.STOPPED))
    points = [(0,), *((choice, depth) for choice in (1, 2) for depth in range(1, 5))]
    assert sorted(tuple(entry.params.values()) for entry in search.ledger.trials()) == points


def test_cmaes_follows_its_metric_and_says_nothing(tmp_path, caplog):
    base_space = space("cmaes")
    x, y = Parameter("x", Float(0.0, 1.0)), Parameter("y", Float(0.0, 1.0))
    search = Search(tmp_path / "sweep", replace(base_space, parameters=(x, y, base_space.parameters[0])))
    for _ in range(80):
        entry = search.draw()
        score = -((entry.params["x"] - 0.7) ** 2) - (entry.params["y"] - 0.2) ** 2
        search.ledger.close(entry.key, End(State.COMPLETE, score=score, values=[score]))
    late_scores = [entry.score for entry in search.ledger.trials()[-20:]]
    assert sum(late_scores) / 20 > -0.02
    assert not caplog.records


X = {"x": distribution_to_json(FloatDistribution(0, 1))}
VALUES = [(1, 0.2), (3, 0.5), (5, math.nan)]


def version(*modes, **kept):
    return SpaceVersion(0, "", "", X, modes or ("max",), kept, {})


def test_the_job_as_written_is_drawn_first_unless_an_earlier_trial_was_it(tmp_path):
    search = Search(tmp_path / "sweep", space("random"))
    start = {"choice": 1, "whole": 5, "rate": 0.01, "share": 0.25, "depth": 2}
    control = {**start, "rate": 0.02}
    search.starts = [start, control]
    assert [search.draw().params in (start, control) for _ in range(3)] == [True, True, False]
    (first_version,) = search.ledger.versions()
    for kept_trials, is_start in (({}, True), ({"a": EarlierTrial(start, State.PRUNED, [], [])}, False)):
        version = replace(first_version, kept=kept_trials)
        _, study_trial = draw_trial(search.space, version, [], 0, next_start(version, [], [start]))
        assert (study_trial.number, study_trial.params == start) == (len(kept_trials), is_start)


@pytest.mark.parametrize(
    ("state", "values", "expected", "value"),
    [
        (State.COMPLETE, [0.7], TrialState.COMPLETE, [0.7]),
        (State.PRUNED, [], TrialState.PRUNED, [0.5]),
        (State.FAILED, [], TrialState.FAIL, None),
        (State.STOPPED, [], TrialState.WAITING, None),
        (State.BUDGET, [], TrialState.WAITING, None),
        (State.RUNNING, [], TrialState.RUNNING, None),
    ],
)
def test_a_study_has_the_state_values_and_intermediate_values_of_an_entry(state, values, expected, value):
    attrs = {"cma:generation": 3}
    fields = {
        "params": {"x": 0.5},
        "system_attrs": attrs,
        "intermediate": VALUES,
        "values": values,
        "reason": "why",
    }
    entry = Entry("t", "trial 0", {}, {"lr": 1}, number=0, state=state, **fields)
    (trial,) = build_study(version(), [entry], "sweep").trials
    assert (trial.state, trial.values, trial.params, trial.system_attrs) == (
        expected,
        value,
        {"x": 0.5},
        attrs,
    )
    assert trial.intermediate_values == {1: 0.2, 3: 0.5}  # a score that is not a number is left out
    assert trial.user_attrs == {
        "label": "trial 0", "settings": {"lr": 1}, "state": state, "reason": "why", "chosen": {},
    }  # fmt: skip
    assert (
        build_study(version("max", "min"), [replace(entry, state=State.PRUNED)], "").trials[0].values is None
    )


def test_earlier_trials_stand_before_those_of_the_space():
    complete_trial = EarlierTrial({"x": 0.1}, State.COMPLETE, [0.7], VALUES)
    pruned_trial = EarlierTrial({"x": 0.2}, State.PRUNED, [], VALUES)
    entry = Entry("t", "trial 0", {}, {}, number=0, params={"x": 0.5})
    study = build_study(version(**{"one/trial-1": complete_trial, "trial-7": pruned_trial}), [entry], "sweep")
    assert [trial.params["x"] for trial in study.trials] == [0.1, 0.2, 0.5]
    assert [trial.user_attrs.get("from") for trial in study.trials] == ["one/trial-1", "trial-7", None]
    assert [trial.values for trial in study.trials] == [[0.7], [0.5], None]


def test_a_trial_in_a_file_has_the_times_of_its_training(tmp_path):
    cost = Cost(seconds=60.0, seen=1e9)
    entry = Entry("t", "trial 0", {}, {}, params={"x": 0.5}, state=State.COMPLETE, values=[0.5], cost=cost)
    storage = JournalStorage(JournalFileBackend(str(tmp_path / "study.log")))
    (trial,) = build_study(version(), [entry], "sweep", storage=storage).trials
    assert trial.datetime_start.timestamp() == 1e9 - 60
    assert trial.datetime_complete.timestamp() == 1e9


SWEPT = "space: {objective.heads.*.temperature: {log_float: [0.05, 1.0]}}\nsearch: {startup: 2}"


def test_a_copy_of_all_studies_is_written_once_and_read_by_optuna(tmp_path, monkeypatch, tiny):
    world, job = World(tmp_path / "home", monkeypatch), tiny_job(tiny)
    baseline = [("shorter", tiny_job(tiny, "train.epochs=2"))]
    world.run(world.plan(job, SWEPT, trials=4, seeds=1, baselines=baseline))
    ledger, file = world.ledger, tmp_path / "study.log"
    write_studies(ledger, file)
    storage = JournalStorage(JournalFileBackend(str(file)))
    names = [f"{ledger.searches[0]}.{ledger.head['id']}", ledger.head["id"]]
    assert optuna.get_all_study_names(storage) == names
    for name, scope in zip(names, ledger.searches, strict=True):
        copy, built_study = optuna.load_study(study_name=name, storage=storage), world.study_of(scope)
        assert [(t.state, t.params, t.values, t.intermediate_values, t.user_attrs) for t in copy.trials] == [
            (t.state, t.params, t.values, t.intermediate_values, t.user_attrs) for t in built_study.trials
        ]
        assert len(copy.trials) == 4
    before = file.read_bytes()
    with pytest.raises(UserError, match=r"--study.*already exists"):
        write_studies(ledger, file)
    assert (file.read_bytes(), sorted(tmp_path.glob("*study*"))) == (before, [file])


VALUES_OF_A_JOB = """
space:
  encoder.width: {choice: [4, 8, 16]}
  train.optimizer: {choice: [adamw, sgd]}
  train.clip_norm: {choice: [null, 1.0]}
  objective.heads.topic.projection: {choice: [{dim: 8}, {dim: 4}]}
  objective.heads.*.weight: {simplex: {total: [0.2, 0.6]}}
  train.lr: {log_float: [0.001, 0.1]}
  train.momentum: {float: [0.5, 0.99], when: {train.optimizer: sgd}}
search: {scheduler: none, startup: 4}
"""


def test_a_copy_has_the_values_that_were_trained(tmp_path, monkeypatch, tiny):
    world, file = World(tmp_path / "home", monkeypatch), tmp_path / "study.log"
    world.run(world.plan(tiny_job(tiny), VALUES_OF_A_JOB, trials=5))
    world.run(world.plan(tiny_job(tiny), VALUES_OF_A_JOB.replace("0.1]", "0.2]"), trials=5))
    write_studies(world.ledger, file)
    study = optuna.load_study(study_name=None, storage=JournalStorage(JournalFileBackend(str(file))))
    trials = world.ledger.trials()
    assert len(study.trials) == len(trials) == 10  # the trials of the earlier space are taken over
    for copy, trial in zip(study.trials, trials, strict=True):
        expected = flatten(trial.settings)
        sections = {key: expected.pop(key) for key in list(expected) if ".projection." in key}
        params = dict(copy.params)
        assert json.loads(params.pop("objective.heads.topic.projection"))["dim"] in sections.values()
        assert params == pytest.approx(expected)
        assert copy.params["encoder.width"] in (4, 8, 16)
    assert study.best_params["train.optimizer"] in ("adamw", "sgd")
    assert study.best_value == max(trial.score for trial in trials)


def test_what_has_no_search_has_no_study(tmp_path):
    with pytest.raises(UserError, match=r"--study.*has no search"):
        write_studies(new_ledger(tmp_path / "sweeps" / "id"), tmp_path / "study.log")


@pytest.mark.parametrize("sampler", ["tpe", "cmaes", "gp", "random"])
def test_a_draw_changes_no_earlier_trial(tmp_path, sampler):
    """Tests that a draw leaves earlier trials unchanged, although the study shares their values."""
    search = Search(tmp_path, space(sampler))
    search.run(6)
    before = [repr(trial) for trial in search.ledger.trials()]
    search.draw()
    assert [repr(trial) for trial in search.ledger.trials()[:6]] == before


@pytest.mark.parametrize(("sampler", "mode"), [("tpe", "max"), ("tpe", "min"), ("brute_force", "max")])
def test_a_draw_learns_from_the_best_and_the_latest_of_many_trials(tmp_path, sampler, mode):
    """Tests that a draw learns from a limited number of trials, and that its seed is the trial's number."""
    base_space = space(sampler, (Goal("val/accuracy", mode),))
    version = SpaceVersion(1, "", "", {}, (mode,), {}, {})
    count = LEARNT + 300
    ledger = new_ledger(tmp_path / "sweeps" / "id")
    ledger.open_version(replace(version, number=0))
    ledger.open_version(version)
    for number in range(-1, count):  # the first trial is the best one, but of an earlier version
        training = Training(f"t{number}", "", {}, {}, number=number + 1, version=min(number + 1, 1))
        state = State.PRUNED if number == 7 else State.COMPLETE
        best = 1e3 if mode == "max" else -1e3
        ledger.open(training)
        ledger.close(training.key, End(state, score=best if number == -1 else float(number % 400)))
    numbers = [int(trial.key[1:]) for trial in trials_to_learn(ledger, base_space, version)]
    if sampler == "brute_force":
        assert numbers == list(range(count))
        return
    assert (len(numbers), numbers[BEST:]) == (LEARNT, list(range(count - LEARNT + BEST, count)))
    best_numbers = range(300, 400) if mode == "max" else [*range(7), *range(8, 101)]
    assert numbers[:BEST] == list(best_numbers)
    seeds = [
        SeededSampler(base_space.search, left_out)
        ._make_sampler(SimpleNamespace(number=5 - left_out))
        ._rng.rng
        for left_out in (0, 3)
    ]
    assert seeds[0].random() == seeds[1].random()
