"""Tests of the conditions under which a sweep starts no more trainings and stops the running ones."""

from types import SimpleNamespace

import pytest

from mlcl.service.engine.budget import Account, parse_budget
from mlcl.service.engine.engine import GRACE, StopConditions
from mlcl.tracking import State


@pytest.fixture
def clock(monkeypatch):
    now = [100.0]
    monkeypatch.setattr("time.monotonic", lambda: now[0])
    return now


@pytest.fixture
def make(tmp_path, clock):
    def new(stop=lambda: False, budget=None, max_failed=None):
        start_time, budget = clock[0], budget and parse_budget(budget)
        account = Account(budget, SimpleNamespace(used_time=lambda *_, **__: clock[0] - start_time))
        return StopConditions(tmp_path, stop, account, max_failed)

    return new


@pytest.mark.parametrize(
    ("how", "cause", "reason"),
    [
        ({}, None, ""),
        ({"stop": True}, State.STOPPED, ""),
        ({"budget": "10s"}, State.BUDGET, "the budget is used up"),
        ({"budget": "10s", "max_failed": 0}, State.BUDGET, "the budget is used up"),  # the first cause stays
    ],
)
def test_a_person_or_the_budget_stops(make, clock, how, cause, reason):
    requests = []
    stop = make(**{**how, "stop": lambda: bool(requests) and "stop" in how})
    assert not stop()
    requests.append(1)
    clock[0] += 11
    assert stop() == (cause is not None)
    for _ in range(20):
        stop.count(State.FAILED, "later")
    assert (stop.cause, stop.reason, stop.file.exists()) == (cause, reason, cause is not None)


def test_a_row_of_failures(make):
    stop = make(max_failed=1)
    stop.count(State.FAILED, "a")
    stop.count(State.STOPPED, "")  # a stopped training does not end the series of failures
    stop.count(State.COMPLETE, "")
    stop.count(State.FAILED, "b")
    assert not stop()
    stop.count(State.FAILED, "c")
    assert stop()
    assert stop.cause is State.FAILED
    assert stop.reason == "2 trainings failed in a row, the limit is 1; the last: c"


def test_trainings_have_their_time_to_end(make, clock):
    stop = make(lambda: True)
    assert not stop.overdue()
    clock[0] += GRACE
    assert not stop.overdue()
    clock[0] += 1
    assert stop.overdue()


def test_a_stop_file_of_an_earlier_command_stops_nobody(make, tmp_path):
    (tmp_path / "STOP").touch()
    stop = make()
    assert not stop.file.exists()
    stop.file.touch()
    stop.clear()
    assert not stop.file.exists()
