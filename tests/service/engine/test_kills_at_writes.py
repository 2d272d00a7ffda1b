"""Tests that a sweep or a table that is killed at any write ends as if it had not been killed."""

import random
import shutil
from dataclasses import replace
from functools import cache

import pytest
from builders import tiny_job
from mlflow import MlflowClient
from reproduced import TUNED, Tables
from sweep_contents import differences
from sweeps import World

from mlcl.service.engine.closing import KILLED, recover
from mlcl.service.search.arms import control_job
from mlcl.tracking import State, Tracker
from mlcl.tracking.delivery import deliver_all

SPACE = """
space:
  objective.heads.*.temperature: {log_float: [0.05, 1.0]}
  evaluation.knn.k: {choice: [1, 3]}
search: {scheduler: asha, reduction_factor: 2, startup: 2}
"""


ENDED = {"COMPLETE", "PRUNED", "FAIL"}


class Sweeps:
    """A sweep in which trials are pruned, one trial fails and the best trial is confirmed."""

    counts = (8, 2)
    """The numbers of kills without and with a store."""
    statuses = frozenset({"FINISHED", "KILLED", "FAILED"})
    again = 150
    """The number of writes after which each command of the repeatedly killed sweep is killed."""
    last = 2
    """The seed of the last training."""

    def __init__(self, folder, patch, data, store):
        self.folder, self.patch, self.data, self.store = folder, patch, data, store

    def make(self, name, mlflow=False):
        uri = None
        if mlflow:
            (self.folder / name).mkdir()
            shutil.copy(self.store, self.folder / name / "mlflow.db")
            uri = f"sqlite:///{self.folder / name}/mlflow.db"
        world = World(self.folder / name, self.patch, uri)
        world.formula.fails = lambda job, epoch: (
            epoch == 2 and 0.058 < job.objective.heads["detail"].temperature < 0.06
        )
        world.formula.kept = lambda job: job.train.epochs - 1  # as after early stopping
        return world, world.plan(tiny_job(self.data), SPACE, trials=6, seeds=2)

    def check_whole(self, world):
        entries = world.ledger.entries.values()
        assert {entry.state for entry in entries} == {State.COMPLETE, State.PRUNED, State.FAILED}
        assert all(entry.state is State.COMPLETE for entry in entries if entry.confirmation)

    def check_closed(self, world):
        """Checks the state of a killed command after another command has run."""
        contents = world.everything()
        assert (contents["ledger"]["record"], contents["ledger"]["state"]) == ("STOPPED", "STOPPED")
        states = {entry["state"] for entry in contents["ledger"]["entries"].values()}
        assert states == {"COMPLETE", "PRUNED", "FAILED", "STOPPED"}
        confirmations = [
            confirmation
            for confirmation in contents["ledger"]["confirmations"].values()
            if not confirmation[0]["race"]
        ]
        assert {tuple(state) for _, state in confirmations} == {("STOPPED", KILLED)}
        assert {log["end"][0] for log in contents["logs"].values()} == states


ARMS = """
space:
  train.lr: {log_float: [0.001, 0.1]}
  objective.heads.*.temperature: {log_float: [0.05, 1.0]}
search: {scheduler: asha, reduction_factor: 2, startup: 2}
"""


class ArmsKind(Sweeps):
    """A sweep with a control and another arm, each with two searches and races."""

    counts, again, last = (4, 1), 400, 1001

    def make(self, name, mlflow=False):
        world, plan = super().make(name, mlflow)
        world.formula.fails = lambda job, epoch: epoch == 2 and job.train.lr > 0.09
        world.formula.scale = lambda job: 0.2 + job.train.lr * (8 + job.train.seed % 3)
        # Trials of half the epochs end between those of the sweep's own job.
        shorter_job = tiny_job(self.data, "train.epochs=2")
        arms_plan = world.plan(plan.job, ARMS)
        arms = {"control": control_job(plan.job), "baselines": [("shorter", shorter_job)]}
        return world, replace(arms_plan, **arms, trials=4, seeds=2, searches=2)

    def check_whole(self, world):
        entries = world.ledger.entries.values()
        assert {entry.state for entry in entries} <= {State.COMPLETE, State.PRUNED, State.FAILED}
        assert len({entry.scope for entry in entries if entry.number is not None}) == 6
        assert {confirmation.race for confirmation in world.ledger.confirmations.values()} == {True, False}

    def check_closed(self, world):
        contents = world.everything()
        assert (contents["ledger"]["record"], contents["ledger"]["state"]) == ("STOPPED", "STOPPED")
        assert "RUNNING" not in {log["end"][0] for log in contents["logs"].values()}


class TablesKind(Sweeps):
    """A table of two cells with two seeds."""

    counts, statuses, again, last = (8, 1), frozenset({"FINISHED"}), 60, 1

    def make(self, name, mlflow=False):
        tables = Tables(self.folder / name, self.patch, self.data, self.store if mlflow else None)
        return tables, tables.plan()

    def check_whole(self, world):
        assert world.states() == ["COMPLETE"] * 4

    def check_closed(self, world):
        assert (world.states()[2], world.states("tables")) == ("STOPPED", ["STOPPED"])
        logs = world.logs()
        assert logs["table"]["end"] == logs["Cold, All, seed 1"]["end"] == ["STOPPED", KILLED]
        ledger = world.everything()["ledger"]
        assert (ledger["state"], [entry["state"] for entry in ledger["entries"].values()]) == (
            "STOPPED",
            ["COMPLETE", "COMPLETE", "STOPPED"],
        )


class TunedKind(TablesKind):
    """A table with a plain and a tuned cell."""

    counts, statuses, again, last = (8, 1), frozenset({"FINISHED", "KILLED"}), 150, 2

    def make(self, name, mlflow=False):
        tables = Tables(self.folder / name, self.patch, self.data, self.store if mlflow else None)
        return tables, tables.plan(TUNED)

    def check_whole(self, world):
        assert world.states() == ["COMPLETE"] * 2
        ledger = world.everything()["ledger"]
        assert {entry["state"] for entry in ledger["entries"].values()} == {"COMPLETE", "PRUNED"}
        assert [state for _, state in ledger["confirmations"].values()] == [["COMPLETE", ""]]

    def check_closed(self, world):
        assert world.states("tables") == ["STOPPED"]
        ledger = world.everything()["ledger"]
        assert ledger["state"] == "STOPPED"
        assert [entry["state"] for entry in ledger["entries"].values()].count("STOPPED") == 1
        assert [state for _, state in ledger["confirmations"].values()] == [["STOPPED", KILLED]]


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    """Returns a store with tables, an experiment and a model, made once because that takes seconds."""
    tracker = Tracker(tmp_path_factory.mktemp("store"))
    tracker.experiment("tiny")
    tracker.make_model("tiny")
    return tracker.home / "mlflow.db"


@pytest.fixture(
    params=[Sweeps, ArmsKind, TablesKind, TunedKind],
    ids=["sweep", "arms", "table", "tuned table"],
)
def kind(request, tiny, tmp_path, monkeypatch, store):
    return request.param(tmp_path, monkeypatch, tiny, store)


BUT_ARMS = pytest.mark.parametrize(
    "kind",
    [Sweeps, pytest.param(ArmsKind, marks=pytest.mark.slow), TablesKind, TunedKind],
    ids=["sweep", "arms", "table", "tuned table"],
    indirect=True,
)
"""All kinds of work; sweeps with arms run only in `make test-slow`."""


@pytest.fixture(scope="module")
def unbroken(tmp_path_factory, tiny, store):
    """Returns a function that runs a kind without kills and returns the points of writes and the results."""

    @cache
    def run(kind, mlflow):
        with pytest.MonkeyPatch.context() as patch:
            instance = kind(tmp_path_factory.mktemp("unbroken"), patch, tiny, store)
            world, plan = instance.make("unbroken", mlflow)
            points = world.points(plan)
            instance.check_whole(world)
            return points, world.mortal.halves, world.everything()

    return lambda kind, mlflow=False: run(type(kind), mlflow)


def harmed(kind, points, whole, mlflow=False, **how):
    """Returns the differences that kills made in the results, by the point of the kill."""
    changes = {}
    for point in points:
        world, plan = kind.make(f"killed-{point}", mlflow)
        world.execute(**how)
        assert world.killed(plan, point)
        assert world.run(plan).state is State.COMPLETE
        lines = differences(world.everything(), whole)
        if lines:
            changes[point] = lines
    return changes


def test_killed_at_some_points(kind, unbroken):
    count, _, expected = unbroken(kind)
    assert harmed(kind, random.Random(0).sample(range(count), kind.counts[0]), expected) == {}


@BUT_ARMS
def test_killed_in_the_middle_of_a_file(kind, unbroken):
    _, halves, expected = unbroken(kind)
    assert halves
    points = {point for file_points in halves.values() for point in (file_points[0], file_points[-1])}
    assert harmed(kind, sorted(points), expected) == {}


@BUT_ARMS
def test_killed_at_some_points_with_mlflow(kind, unbroken):
    count, _, expected = unbroken(kind, mlflow=True)
    assert {run["status"] for run in expected["mlflow"].values()} == kind.statuses
    points = random.Random(1).sample(range(count), kind.counts[1])
    assert harmed(kind, points, expected, mlflow=True) == {}


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_killed_at_every_point(kind, unbroken):
    count, _, expected = unbroken(kind)
    assert harmed(kind, range(count), expected) == {}


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_killed_at_many_points_with_mlflow(kind, unbroken):
    count, _, expected = unbroken(kind, mlflow=True)
    assert harmed(kind, range(0, count, 23 if isinstance(kind, TablesKind) else 11), expected, True) == {}


def test_killed_again_and_again(kind, unbroken):
    *_, expected = unbroken(kind)
    world, plan = kind.make("killed")
    kills = 0
    while world.killed(plan, kind.again):  # each command gets a little further
        kills += 1
        assert kills < 100
    assert kills > 3
    assert differences(world.everything(), expected) == []


def test_killed_with_two_trainings_at_once(kind):
    world, plan = kind.make("unbroken")
    world.execute(at_once=2)
    reference = world.points(plan), world.everything()
    for point in random.Random(2).sample(range(reference[0]), 5):
        world, plan = kind.make(f"killed-{point}")
        world.execute(at_once=2)
        assert world.killed(plan, point)
        assert world.run(plan).state is State.COMPLETE
        contents = world.everything()
        if isinstance(kind, TunedKind):
            continue
        if isinstance(kind, TablesKind):
            assert differences(_unordered(contents), _unordered(reference[1])) == []
            continue
        if isinstance(kind, ArmsKind):
            assert {trial.state.name for trial in world.study.trials} <= ENDED
            continue
        # The pruner depends on the order of scores, so only the agreement of ledger and logs is checked.
        entries = contents["ledger"]["entries"]
        assert [entry["number"] for entry in entries.values()][:6] == list(range(6))
        for key, entry in entries.items():
            assert entry["state"] in ("COMPLETE", "PRUNED", "FAILED")
            assert contents["logs"][f"SWEEP.{key}"]["end"] == [entry["state"], entry["reason"]]
        assert {trial.state.name for trial in world.study.trials} <= ENDED


def _unordered(told):
    """Returns the results with sorted events, since the order of two trainings at once varies."""
    return {**told, "ledger": {**told["ledger"], "history": sorted(told["ledger"]["history"])}}


@BUT_ARMS
def test_a_killed_one_is_closed_by_any_command_and_goes_on_by_its_own(kind, unbroken):
    *_, expected = unbroken(kind, mlflow=True)
    world, plan = kind.make("killed", mlflow=True)
    world.kill_when(lambda job, epoch: job.train.seed == kind.last and epoch == 3)
    assert world.killed(plan)
    recover(world.home)
    assert deliver_all(world.home, world.mlflow) == 0
    kind.check_closed(world)
    assert not MlflowClient(world.mlflow).search_runs(["0", "1"], "attributes.status = 'RUNNING'")
    assert world.run(plan).state is State.COMPLETE
    assert differences(world.everything(), expected) == []
