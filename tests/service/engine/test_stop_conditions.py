"""When a sweep stops starting trainings, and how those that run are told."""

import pytest

from mlcl.service.engine.budget import Account, parse_budget
from mlcl.service.engine.stop_conditions import GRACE, StopConditions
from mlcl.tracking import State


@pytest.fixture
def clock(monkeypatch):
    now = [100.0]
    monkeypatch.setattr("time.monotonic", lambda: now[0])
    return now


@pytest.fixture
def make(tmp_path, clock):
    def new(stop=lambda: False, budget=None, max_failed=None):
        account = Account(budget and parse_budget(budget), 0.0, clock=lambda: clock[0])
        return StopConditions(tmp_path, stop, account, max_failed)

    return new


def test_nothing_halts(make):
    halt = make()
    for _ in range(20):
        halt.count(State.FAILED, "x")
    assert not halt()
    assert (halt.cause, halt.overdue(), halt.file.exists()) == (None, False, False)


def test_a_person(make):
    asked = []
    halt = make(lambda: bool(asked))
    assert not halt()
    asked.append(1)
    assert halt()
    assert (halt.cause, halt.reason, halt.file.exists()) == (State.STOPPED, "", True)


def test_the_budget(make, clock):
    halt = make(budget="10s")
    assert not halt()
    clock[0] += 11
    assert halt()
    assert (halt.cause, halt.reason) == (State.BUDGET, "the budget is used up")


def test_a_row_of_failures(make):
    halt = make(max_failed=1)
    halt.count(State.FAILED, "a")
    halt.count(State.STOPPED, "")  # no answer to whether it works
    halt.count(State.COMPLETE, "")
    halt.count(State.FAILED, "b")
    assert not halt()
    halt.count(State.FAILED, "c")
    assert halt()
    assert halt.cause is State.FAILED
    assert halt.reason == "2 trainings failed in a row, the limit is 1; the last: c"


def test_the_first_cause_stays(make, clock):
    halt = make(lambda: clock[0] > 200, budget="10s", max_failed=0)
    clock[0] += 11
    assert halt()
    clock[0] += 100
    halt.count(State.FAILED, "later")
    assert halt()
    assert halt.cause is State.BUDGET


def test_trainings_have_their_time_to_end(make, clock):
    halt = make(lambda: True)
    assert not halt.overdue()
    clock[0] += GRACE
    assert not halt.overdue()
    clock[0] += 1
    assert halt.overdue()


def test_a_stop_file_of_an_earlier_command_stops_nobody(make, tmp_path):
    (tmp_path / "STOP").touch()
    halt = make()
    assert not halt.file.exists()
    halt.file.touch()
    halt.clear()
    assert not halt.file.exists()
