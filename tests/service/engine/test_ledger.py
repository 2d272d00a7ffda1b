"""The ledger: what its events add up to, read at any moment."""

import time

import pytest
from ledgers import new_ledger

from mlcl.service.engine.ledger import Ledger
from mlcl.tracking import State

JOB = {"train": {"epochs": 4}}


@pytest.fixture
def clock(monkeypatch):
    now = [1000.0]
    monkeypatch.setattr("mlcl.service.engine.ledger.now", lambda: now[0])
    return now


@pytest.fixture
def ledger(tmp_path, clock):
    ledger = new_ledger(tmp_path / "sweeps" / "mlcl-1")
    ledger.append("sweep", id="mlcl-1", free=[])
    ledger.append("session")
    return ledger


def generation(ledger, number=0, kept=None):
    ledger.append(
        "generation",
        number=number,
        space_hash=f"h{number}",
        space="",
        distributions={},
        modes=["max"],
        kept=kept or {},
        dropped={},
        warm=[],
    )


def opened(ledger, number, group=None, generation=0):
    key = f"{group}-seed{number}" if group else f"trial-{number}"
    how = {"number": None if group else number, "group": group, "params": {}, "system_attrs": {}}
    ledger.append("open", key=key, label=key, job=JOB, settings={"x": 1}, generation=generation, **how)
    return key


def closed(ledger, key, state, score=None, **how):
    values = [] if score is None else [score]
    usual = {"values": values, "metrics": {}, "chosen": {}, "reason": ""}
    ledger.append("close", key=key, state=state, score=score, **(usual | how))


def summary(ledger):
    return {name: value for name, value in vars(ledger).items() if name not in ("_database", "_session")}


def test_what_is_read_is_what_was_appended(ledger, tmp_path):
    generation(ledger)
    key = opened(ledger, 0)
    ledger.append("begin", key=key, cpus=1, gpus=0)
    ledger.append("rung", key=key, epoch=1, score=0.25)
    ledger.append("rung", key=key, epoch=2, score=float("nan"))
    closed(ledger, key, State.COMPLETE, 0.5, metrics={"val/accuracy": 0.5}, chosen={"evaluation.knn.k": 3})
    ledger.append("group", key="g", label="g", job=JOB, settings={}, labels=["g"], roles=["model"])
    ledger.append("close_group", key="g", state=State.FAILED, reason="why")
    ledger.append("registered", key=key, text="models:/x@best")
    ledger.append("end", state=State.COMPLETE, reason="")
    again = Ledger(tmp_path / "sweeps" / "mlcl-1")
    assert repr(summary(again)) == repr(summary(ledger))
    entry = again.entries[key]
    assert (entry.state, entry.score, entry.values) == (State.COMPLETE, 0.5, [0.5])
    assert entry.rungs[0] == (1, 0.25)
    assert entry.chosen == {"evaluation.knn.k": 3}
    assert again.group_states == {"g": (State.FAILED, "why")}
    assert again.history == [("rung", key, 1), ("rung", key, 2), ("close", key, 0)]
    assert (again.state, again.registered) == (State.COMPLETE, {key: "models:/x@best"})


@pytest.mark.parametrize("jump", [-3600, 3600])
def test_a_clock_that_is_set_meanwhile_costs_nothing(tmp_path, monkeypatch, jump):
    ledger, began = new_ledger(tmp_path / "sweeps" / "mlcl-1"), time.time()
    ledger.append("session")
    key = opened(ledger, 0)
    ledger.append("begin", key=key, cpus=1, gpus=0)
    monkeypatch.setattr("time.time", lambda: began + jump)
    closed(ledger, key, State.COMPLETE, 0.5)
    for unit in ("clock", "cpu"):
        assert 0 < Ledger(tmp_path / "sweeps" / "mlcl-1").spent(unit) < 600


def test_time_is_counted_over_sessions_and_not_between_them(ledger, clock, tmp_path):
    generation(ledger)
    key = opened(ledger, 0)
    ledger.append("begin", key=key, cpus=2, gpus=0.5)
    clock[0] += 10
    ledger.append("rung", key=key, epoch=1, score=0.1)
    clock[0] += 5
    closed(ledger, key, State.STOPPED)
    assert [ledger.spent(unit, running=True) for unit in ("clock", "cpu", "gpu")] == [15, 30, 7.5]
    clock[0] += 1000  # nobody works
    ledger = Ledger(tmp_path / "sweeps" / "mlcl-1")
    ledger.append("session")
    ledger.append("begin", key=key, cpus=2, gpus=0.5)
    clock[0] += 5
    assert ledger.spent("clock") == 15
    assert [ledger.spent(unit, running=True) for unit in ("clock", "cpu", "gpu")] == [20, 40, 10]
    closed(ledger, key, State.COMPLETE, 0.5)
    for each in (ledger, Ledger(tmp_path / "sweeps" / "mlcl-1")):
        assert each.entries[key].cost.seconds == 20
        assert [each.spent(unit) for unit in ("clock", "cpu", "gpu")] == [20, 40, 10]


def test_a_killed_training_counts_up_to_the_last_that_was_heard_of_it(ledger, clock, tmp_path):
    generation(ledger)
    key = opened(ledger, 0)
    ledger.append("begin", key=key, cpus=1, gpus=0)
    clock[0] += 10
    ledger.append("rung", key=key, epoch=1, score=0.1)
    clock[0] += 3600
    ledger = Ledger(tmp_path / "sweeps" / "mlcl-1")
    ledger.append("session")
    assert ledger.spent("cpu") == 10
    assert ledger.entries[key].resumable


def test_closing_what_was_killed_does_not_count_the_time_until_then(ledger, clock, tmp_path):
    generation(ledger)
    key = opened(ledger, 0)
    ledger.append("session")
    ledger.append("begin", key=key, cpus=1, gpus=0)
    clock[0] += 10
    ledger.append("beat")
    clock[0] += 36_000
    ledger = Ledger(tmp_path / "sweeps" / "mlcl-1")
    ledger.append("killed")
    closed(ledger, key, State.STOPPED, None)
    ledger.append("end", state=State.STOPPED, reason="its process was killed")
    clock[0] += 36_000
    ledger.append("session")
    clock[0] += 5
    ledger.append("beat")
    assert (ledger.spent("clock"), ledger.spent("cpu")) == (15, 10)
    assert Ledger(tmp_path / "sweeps" / "mlcl-1").spent("clock") == 15


def test_a_second_process_of_a_training_is_no_second_time(ledger, clock):
    generation(ledger)
    key = opened(ledger, 0)
    for _ in range(2):
        ledger.append("begin", key=key, cpus=1, gpus=0)
        clock[0] += 10
    closed(ledger, key, State.COMPLETE, 0.5)
    assert ledger.spent("cpu") == 20


def test_which_trials_compare_in_the_present_space(ledger):
    assert ledger.counted() == []
    generation(ledger)
    for number in range(3):
        closed(ledger, opened(ledger, number), State.COMPLETE, 0.5)
    kept = {"params": {}, "state": "COMPLETE", "values": [0.5], "rungs": []}
    generation(ledger, 1, kept={"trial-1": kept})
    opened(ledger, 3, generation=1)
    opened(ledger, 1, group="g")
    assert [entry.key for entry in ledger.counted()] == ["trial-1", "trial-3"]
    assert [entry.key for entry in ledger.trials()] == ["trial-0", "trial-1", "trial-2", "trial-3"]
    assert [entry.key for entry in ledger.trials(1)] == ["trial-3"]
    assert [entry.key for entry in ledger.seeds_of("g")] == ["g-seed1"]


def test_a_group_has_no_state_while_its_seeds_run(ledger):
    generation(ledger)
    ledger.append("group", key="g", label="g", job=JOB, settings={}, labels=["g"], roles=["model"])
    key = opened(ledger, 1, group="g")
    closed(ledger, key, State.STOPPED)
    ledger.append("close_group", key="g", state=State.STOPPED, reason="")
    assert ledger.group_states == {"g": (State.STOPPED, "")}
    ledger.append("begin", key=key, cpus=1, gpus=0)
    assert ledger.group_states == {}
    ledger.append("close_group", key="g", state=State.COMPLETE, reason="")
    opened(ledger, 2, group="g")
    assert ledger.group_states == {}


def test_only_what_is_settled_is_in_the_order_of_ends(ledger):
    generation(ledger)
    key = opened(ledger, 0)
    closed(ledger, key, State.BUDGET)
    assert ledger.history == []
    ledger.append("begin", key=key, cpus=1, gpus=0)
    assert ledger.entries[key].state is State.RUNNING
    closed(ledger, key, State.PRUNED, 0.1)
    assert ledger.history == [("close", key, 0)]
