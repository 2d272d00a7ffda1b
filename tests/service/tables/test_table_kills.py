"""A table that is killed before, in the middle of or after any write ends as if it had not been."""

import random

import pytest
from mlflow import MlflowClient
from reproduced import Tables
from sweep_contents import differences

from mlcl.service.engine.state_sync import close_killed_sweep
from mlcl.service.runs.crash_recovery import KILLED, close_orphans
from mlcl.tracking import State, Tracker, deliver_all

KILLED_RUN = "Cold, All, seed 1"


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    """A store with its tables and experiment: making them takes seconds."""
    tracker = Tracker(tmp_path_factory.mktemp("store"))
    tracker.experiment("tiny")
    return tracker.home / "mlflow.db"


@pytest.fixture
def make(tiny, tmp_path, monkeypatch):
    return lambda name="home", mlflow=None: Tables(tmp_path / name, monkeypatch, tiny, mlflow)


def unbroken(make, mlflow=None):
    tables = make("unbroken", mlflow)
    count = tables.points(tables.plan())
    assert tables.states() == ["COMPLETE"] * 4
    return count, tables.everything()


def harmed(make, points, whole, mlflow=None, **how):
    """What each kill changed, by its point; empty where none changed anything."""
    found = {}
    for point in points:
        tables = make(f"killed-{point}", mlflow)
        tables.execute(**how)
        assert tables.killed(tables.plan(), point)
        assert tables.run(tables.plan()).state is State.COMPLETE
        lines = differences(tables.everything(), whole)
        if lines:
            found[point] = lines
    return found


def test_killed_at_some_points(make):
    count, whole = unbroken(make)
    assert harmed(make, random.Random(0).sample(range(count), 20), whole) == {}


def test_killed_at_some_points_with_mlflow(make, store):
    count, whole = unbroken(make, store)
    assert {run["status"] for run in whole["mlflow"].values()} == {"FINISHED"}
    assert {run["parent"] for run in whole["mlflow"].values()} == {None, "table"}
    assert harmed(make, random.Random(1).sample(range(count), 3), whole, store) == {}


def test_killed_with_two_trainings_at_once(make):
    count, whole = unbroken(make)
    assert harmed(make, random.Random(2).sample(range(count), 10), whole, at_once=2) == {}


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_killed_at_every_point(make):
    count, whole = unbroken(make)
    assert harmed(make, range(count), whole) == {}


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_killed_at_many_points_with_mlflow(make, store):
    count, whole = unbroken(make, store)
    assert harmed(make, range(0, count, 11), whole, store) == {}


def test_killed_again_and_again(make):
    _, whole = unbroken(make)
    tables = make("killed")
    kills = 0
    while tables.killed(tables.plan(), 60):  # each command gets a little further
        kills += 1
        assert kills < 100
    assert kills > 3
    assert differences(tables.everything(), whole) == []


def test_a_killed_table_is_closed_by_any_command_and_goes_on_by_its_own(make, store):
    _, whole = unbroken(make, store)
    tables = make("killed", store)
    tables.kill_when(lambda job, epoch: job.train.seed == 1 and epoch == 3)
    assert tables.killed(tables.plan())
    assert (tables.states(), tables.states("tables")) == (["COMPLETE", "COMPLETE", "RUNNING"], ["RUNNING"])
    close_orphans(tables.home, close_killed_sweep)
    assert deliver_all(tables.home, tables.mlflow) == 0
    assert (tables.states()[2], tables.states("tables")) == ("STOPPED", ["STOPPED"])
    logs = tables.logs()
    assert logs["table"]["end"] == logs[KILLED_RUN]["end"] == ["STOPPED", KILLED]
    assert not MlflowClient(tables.mlflow).search_runs(["0", "1"], "attributes.status = 'RUNNING'")
    assert tables.run(tables.plan()).state is State.COMPLETE
    assert differences(tables.everything(), whole) == []
