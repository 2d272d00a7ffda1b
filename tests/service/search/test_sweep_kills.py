"""A sweep that is killed before, in the middle of or after any write ends as if it had not been."""

import random

import pytest
from builders import tiny_job
from mlflow import MlflowClient
from sweep_contents import differences
from sweeps import World

from mlcl.service.engine.state_sync import close_killed_sweep, study_differences
from mlcl.service.runs.crash_recovery import KILLED, close_orphans
from mlcl.tracking import State, Tracker, deliver_all

SPACE = """
space:
  objective.heads.*.temperature: {log_float: [0.05, 1.0]}
  evaluation.knn.k: {choice: [1, 3]}
search: {scheduler: asha, reduction_factor: 2, startup: 2}
"""


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    """A store with its tables: making them takes seconds."""
    return Tracker(tmp_path_factory.mktemp("store")).uri


@pytest.fixture
def make(tiny, tmp_path, monkeypatch):
    """Worlds with the same sweep: it prunes, one of its trials fails, the best is confirmed."""

    def new(name, mlflow=None):
        world = World(tmp_path / name, monkeypatch, mlflow)
        world.formula.fails = lambda job, epoch: (
            epoch == 2 and 0.058 < job.objective.heads["detail"].temperature < 0.06
        )
        return world, world.plan(tiny_job(tiny), SPACE, trials=6, seeds=2)

    return new


def unbroken(make, mlflow=None):
    world, plan = make("unbroken", mlflow)
    if mlflow:  # the first in a store makes experiment and model for all
        world.run(plan)
        world, plan = make("unbroken-too", mlflow)
    points = world.points(plan)
    entries = world.ledger.entries.values()
    assert {entry.state for entry in entries} == {State.COMPLETE, State.PRUNED, State.FAILED}
    assert all(entry.state is State.COMPLETE for entry in entries if entry.group)
    return points, world.everything()


def harmed(make, points, whole, mlflow=None):
    """What each kill changed, by its point; empty where none changed anything."""
    found = {}
    for point in points:
        world, plan = make(f"killed-{point}", mlflow)
        assert world.killed(plan, point)
        assert world.run(plan).state is State.COMPLETE
        lines = differences(world.everything(), whole)
        lines += study_differences(world.study, world.ledger, world.ledger.generations[-1])
        if lines:
            found[point] = lines
    return found


def test_killed_at_some_points(make):
    count, whole = unbroken(make)
    assert harmed(make, random.Random(0).sample(range(count), 20), whole) == {}


def test_killed_at_some_points_with_mlflow(make, store):
    count, whole = unbroken(make, store)
    assert {run["status"] for run in whole["mlflow"].values()} == {"FINISHED", "KILLED", "FAILED"}
    assert harmed(make, random.Random(1).sample(range(count), 6), whole, store) == {}


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_killed_at_every_point(make):
    count, whole = unbroken(make)
    assert harmed(make, range(count), whole) == {}


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_killed_at_many_points_with_mlflow(make, store):
    count, whole = unbroken(make, store)
    assert harmed(make, range(0, count, 23), whole, store) == {}


def test_killed_again_and_again(make):
    _, whole = unbroken(make)
    world, plan = make("killed")
    kills = 0
    while world.killed(plan, 150):  # each command gets a little further
        kills += 1
        assert kills < 100
    assert kills > 5
    assert differences(world.everything(), whole) == []


def test_killed_with_two_trainings_at_once(make):
    world, plan = make("unbroken")
    world.execute(at_once=2)
    for point in random.Random(2).sample(range(world.points(plan)), 10):
        world, plan = make(f"killed-{point}")
        world.execute(at_once=2)
        assert world.killed(plan, point)
        assert world.run(plan).state is State.COMPLETE
        told = world.everything()
        entries = told["ledger"]["entries"]
        assert [entry["number"] for entry in entries.values()][:6] == list(range(6))
        for key, entry in entries.items():
            assert entry["state"] in ("COMPLETE", "PRUNED", "FAILED")
            assert told["logs"][f"SWEEP.{key}"]["end"] == [entry["state"], entry["reason"]]
        assert study_differences(world.study, world.ledger, world.ledger.generations[-1]) == []


def test_a_killed_sweep_is_closed_by_any_command_and_goes_on_by_its_own(make, store):
    _, whole = unbroken(make, store)
    world, plan = make("killed", store)
    world.kill_when(lambda job, epoch: job.train.seed == 2 and epoch == 3)
    assert world.killed(plan)
    assert State.RUNNING in {entry.state for entry in world.ledger.entries.values()}
    close_orphans(world.home, close_killed_sweep)
    assert deliver_all(world.home, store) == 0
    told = world.everything()
    assert (told["ledger"]["record"], told["ledger"]["state"]) == ("STOPPED", "STOPPED")
    states = {entry["state"] for entry in told["ledger"]["entries"].values()}
    assert states == {"COMPLETE", "PRUNED", "FAILED", "STOPPED"}
    assert {tuple(state) for _, state in told["ledger"]["groups"].values()} == {("STOPPED", KILLED)}
    assert {log["end"][0] for log in told["logs"].values()} == states
    assert {run["status"] for run in told["mlflow"].values()} == {"FINISHED", "KILLED", "FAILED"}
    assert not MlflowClient(store).search_runs(["0", "1"], "attributes.status = 'RUNNING'")
    assert world.run(plan).state is State.COMPLETE
    assert differences(world.everything(), whole) == []
