"""Tests of the state of a ledger that follows from its events, read at any moment."""

import time
from random import Random

import pytest
from ledgers import new_ledger

from mlcl.results.sweep_result import rank_trials
from mlcl.service.engine.entries import Confirmation, EarlierTrial, End, SpaceVersion, Training
from mlcl.service.engine.ledger import Ledger
from mlcl.tracking import State

JOB = {"train": {"epochs": 4}}
UNITS = ("clock", "cpu", "gpu")


@pytest.fixture
def clock(monkeypatch):
    now = [1000.0]
    monkeypatch.setattr("mlcl.service.engine.ledger.now", lambda: now[0])
    return now


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "sweeps" / "mlcl-1"


@pytest.fixture
def ledger(folder, clock):
    ledger = new_ledger(folder)
    ledger.append("sweep", id="mlcl-1", free=[])
    ledger.append("session")
    add_version(ledger)
    return ledger


def add_version(ledger, number=0, kept=None):
    ledger.open_version(SpaceVersion(number, f"h{number}", "", {}, ("max",), kept or {}, {}))


def trial(ledger, number=0, version=0):
    return ledger.open(Training(f"trial-{number}", "", JOB, {"x": 1}, version, number)).key


def seed(ledger, number):
    return ledger.open(Training(f"g-seed{number}", "", JOB, {}, confirmation="g")).key


def begin(ledger, key="trial-0", **how):
    ledger.append("begin", key=key, **{"cpus": 1, "gpus": 0, **how})


def test_a_ledger_that_is_read_is_the_one_that_was_written(ledger, folder):
    key = trial(ledger)
    begin(ledger)
    ledger.append("value", key=key, epoch=1, score=0.25)
    ledger.append("value", key=key, epoch=2, score=float("nan"))
    knn_settings = {"evaluation.knn.k": 3}
    ledger.close(
        key, End(State.COMPLETE, score=0.5, values=[0.5], metrics={"val/accuracy": 0.5}, chosen=knn_settings)
    )
    ledger.open_confirmation(Confirmation("g", "g", JOB, {}, labels=("g",), roles=("model",)))
    ledger.append("close_confirmation", key="g", state=State.FAILED, reason="why")
    ledger.append("registered", key=key, text="models:/x@best", run="r")
    ledger.append("end", state=State.COMPLETE, reason="")
    reread_ledger = Ledger(folder)

    def content(reading):
        return {name: value for name, value in vars(reading).items() if name not in ("_database", "_session")}

    assert repr(content(reread_ledger)) == repr(content(ledger))
    entry = reread_ledger.entries[key]
    assert (entry.state, entry.score, entry.values, entry.chosen) == (
        State.COMPLETE,
        0.5,
        [0.5],
        knn_settings,
    )
    assert entry.intermediate[0] == (1, 0.25)
    assert reread_ledger.confirmation_states == {"g": (State.FAILED, "why")}
    assert reread_ledger.history == [("value", key, 1), ("value", key, 2), ("close", key, 0)]
    assert (reread_ledger.state, reread_ledger.registered) == (State.COMPLETE, {key: "models:/x@best"})


@pytest.mark.parametrize("jump", [-3600, 3600])
def test_a_clock_that_is_set_meanwhile_costs_nothing(folder, monkeypatch, jump):
    ledger, start_time = new_ledger(folder), time.time()
    ledger.append("session")
    key = trial(ledger)
    begin(ledger)
    monkeypatch.setattr("time.time", lambda: start_time + jump)
    ledger.close(key, End(State.COMPLETE))
    assert all(0 < Ledger(folder).used_time(unit) < 600 for unit in ("clock", "cpu"))


def test_time_is_counted_over_sessions_and_not_between_them(ledger, clock, folder):
    key = trial(ledger)
    begin(ledger, cpus=2, gpus=0.5)
    clock[0] += 10
    ledger.append("value", key=key, epoch=1, score=0.1)
    clock[0] += 5
    ledger.close(key, End(State.STOPPED))
    assert [ledger.used_time(unit) for unit in UNITS] == [15, 30, 7.5]
    clock[0] += 1000  # no command runs in this time
    ledger = Ledger(folder)
    ledger.append("session")
    for _ in range(2):  # a second process of the same training does not count twice
        begin(ledger, cpus=2, gpus=0.5)
    clock[0] += 5
    assert ledger.clock_seconds == 15  # the clock counts up to the last event
    assert [ledger.used_time(unit) for unit in UNITS] == [20, 40, 10]
    ledger.close(key, End(State.COMPLETE))
    for reading in (ledger, Ledger(folder)):
        assert reading.entries[key].cost.seconds == 20
        assert [reading.used_time(unit) for unit in UNITS] == [20, 40, 10]


def test_the_wait_for_mlflow_after_the_end_is_not_counted(ledger, clock, folder):
    ledger.append("session")
    clock[0] += 10
    ledger.append("end", state=State.COMPLETE, reason="")
    clock[0] += 30
    assert ledger.used_time("clock") == 10
    ledger.append("registered", key="trial-0000", text="models:/x@best", run="r")
    for reading in (ledger, Ledger(folder)):
        assert reading.used_time("clock") == 10


def test_a_killed_training_counts_up_to_its_last_event(ledger, clock, folder):
    key = trial(ledger)
    begin(ledger)
    clock[0] += 10
    ledger.append("value", key=key, epoch=1, score=0.1)
    clock[0] += 3600
    ledger = Ledger(folder)
    ledger.append("session")
    assert ledger.used_time("cpu") == 10
    assert ledger.entries[key].resumable


def test_closing_what_was_killed_does_not_count_the_time_until_then(ledger, clock, folder):
    key = trial(ledger)
    ledger.append("session")
    begin(ledger)
    clock[0] += 10
    ledger.append("beat")
    clock[0] += 36_000
    ledger = Ledger(folder)
    ledger.append("killed")
    ledger.close(key, End(State.STOPPED))
    ledger.append("end", state=State.STOPPED, reason="its process was killed")
    clock[0] += 36_000
    ledger.append("session")
    clock[0] += 5
    ledger.append("beat")
    assert (ledger.used_time("clock"), ledger.used_time("cpu")) == (15, 10)
    assert Ledger(folder).used_time("clock") == 15


def test_which_trials_compare_in_the_present_space(ledger, folder):
    assert new_ledger(folder.parent / "mlcl-2").counted_trials() == ledger.counted_trials() == []
    for number in range(3):
        ledger.close(trial(ledger, number), End(State.COMPLETE, score=0.5, values=[0.5]))
    add_version(ledger, 1, kept={"trial-1": EarlierTrial({}, State.COMPLETE, [0.5], [])})
    trial(ledger, 3, version=1)
    seed(ledger, 1)
    assert [entry.key for entry in ledger.counted_trials()] == ["trial-1", "trial-3"]
    assert [entry.key for entry in ledger.trials()] == ["trial-0", "trial-1", "trial-2", "trial-3"]
    assert [entry.key for entry in ledger.trials(1)] == ["trial-3"]
    assert [entry.key for entry in ledger.seeds_of("g")] == ["g-seed1"]


def test_a_confirmation_has_no_state_while_its_seeds_run(ledger):
    ledger.open_confirmation(Confirmation("g", "g", JOB, {}))
    key = seed(ledger, 1)
    ledger.close(key, End(State.STOPPED))
    ledger.append("close_confirmation", key="g", state=State.STOPPED, reason="")
    assert ledger.confirmation_states == {"g": (State.STOPPED, "")}
    begin(ledger, key)
    assert ledger.confirmation_states == {}
    ledger.append("close_confirmation", key="g", state=State.COMPLETE, reason="")
    seed(ledger, 2)
    assert ledger.confirmation_states == {}


def test_only_what_is_settled_is_in_the_order_of_ends(ledger):
    key = trial(ledger)
    ledger.close(key, End(State.BUDGET))
    assert ledger.history == []
    begin(ledger)
    assert ledger.entries[key].state is State.RUNNING
    ledger.close(key, End(State.PRUNED, score=0.1))
    assert ledger.history == [("close", key, 0)]


def closed(ledger, key, random):
    state = random.choice([State.COMPLETE, State.COMPLETE, State.COMPLETE, State.FAILED, State.STOPPED])
    score = random.choice([0.25, 0.5, 0.75]) if state is State.COMPLETE else None
    ledger.close(key, End(state, score=score))


@pytest.mark.parametrize("seed", range(5))
def test_ranks_and_counts_that_follow_each_event_are_those_of_a_new_reading(ledger, folder, seed):
    random, version, number, max_length = Random(seed), 0, 0, 0
    ledger.append("session")
    for _ in range(120):
        open_keys = [key for key, entry in ledger.entries.items() if not entry.ended]
        step = random.random()
        if step < 0.05:
            version += 1
            kept_trials = {key: EarlierTrial({}, State.COMPLETE, [], []) for key in list(ledger.entries)[::2]}
            add_version(ledger, version, kept_trials)
        elif step < 0.45 or not open_keys:
            trial(ledger, number, version)
            number += 1
        elif step < 0.7:
            begin(ledger, random.choice(open_keys))
        elif step < 0.72:
            ledger.append("killed")
        else:
            closed(ledger, random.choice(open_keys), random)
        for mode in ("max", "min"):
            assert list(ledger.ranked_trials("", mode)) == rank_trials(ledger.counted_trials(), mode)
        for version_filter in (None, version):
            trials = ledger.trials(version_filter)
            assert ledger.trial_count(version_filter) == len(trials)
            assert ledger.left_count(version_filter) == sum(entry.resumable for entry in trials)
        running_entries = {
            key: entry for key, entry in ledger.entries.items() if entry.cost.began is not None
        }
        assert ledger.running == running_entries
        max_length = max(max_length, len(ledger.ranked_trials("", "max")))
    assert max_length >= 8
    assert number > version > 0
    assert list(Ledger(folder).ranked_trials("", "max")) == list(ledger.ranked_trials("", "max"))
