"""What is in MLflow's store after logging: read back, not believed."""

from pathlib import Path

import pytest
from mlflow import MlflowClient

from mlcl.errors import UserError
from mlcl.tracking import Provenance, State, Tracker, mlflow_listener
from mlcl.training.events import Event


@pytest.fixture(scope="module")
def tracker(tmp_path_factory):
    return Tracker(tmp_path_factory.mktemp("home"))


def start(tracker, name="run", **how):
    return tracker.start("exp", name, owner=name, params={"a.b": "1"}, tags={"mlcl.id": name}, **how)


def history(log, key):
    return [(m.step, m.value) for m in log._client.get_metric_history(log.run_id, key)]


def test_a_run_has_what_was_logged_and_its_state(tracker):
    log = start(tracker, source=Provenance({"mlflow.source.git.commit": "abc"}, "diff --git"))
    log.metrics({"train/loss": 0.5}, 3)
    log.metrics({"train/loss": 0.25}, 6)
    log.finish(State.COMPLETE)
    run = tracker.client.get_run(log.run_id)
    assert run.info.status == "FINISHED"
    assert run.data.params == {"a.b": "1"}
    assert run.data.tags["mlcl.state"] == "COMPLETE"
    assert run.data.tags["mlflow.source.git.commit"] == "abc"
    assert history(log, "train/loss") == [(3, 0.5), (6, 0.25)]
    assert [a.path for a in tracker.client.list_artifacts(log.run_id, "provenance")] == [
        "provenance/uncommitted.diff"
    ]


@pytest.mark.parametrize(
    ("state", "status"),
    [
        (State.PRUNED, "KILLED"),
        (State.STOPPED, "KILLED"),
        (State.BUDGET, "KILLED"),
        (State.FAILED, "FAILED"),
    ],
)
def test_every_end_has_its_status_and_tag(tracker, state, status):
    log = start(tracker)
    log.finish(state, "because")
    run = tracker.client.get_run(log.run_id)
    assert (run.info.status, run.data.tags["mlcl.state"]) == (status, state.value)
    assert run.data.tags["mlcl.reason"] == "because"


def test_a_reattached_run_goes_on_without_a_doubled_point(tracker):
    log = start(tracker)
    for step in (1, 2, 3):
        log.metrics({"train/loss": float(step)}, step)
    log.finish(State.STOPPED)
    again = tracker.attach(log.run_id)
    assert tracker.client.get_run(log.run_id).info.status == "RUNNING"
    for step in (2, 3, 4):
        again.metrics({"train/loss": float(step)}, step)
    again.finish(State.COMPLETE)
    assert history(again, "train/loss") == [(1, 1.0), (2, 2.0), (3, 3.0), (4, 4.0)]


def test_a_run_that_is_gone_cannot_be_attached(tracker):
    assert tracker.attach("0" * 32) is None
    log = start(tracker)
    tracker.client.delete_run(log.run_id)
    assert tracker.attach(log.run_id) is None


def test_runs_nest(tracker):
    parent = start(tracker, "sweep")
    child = start(tracker, "trial 0", parent=parent.run_id)
    run = tracker.client.get_run(child.run_id)
    assert run.data.tags["mlflow.parentRunId"] == parent.run_id


def test_many_parameters_are_logged_in_allowed_portions(tracker):
    params = {f"key.{i}": str(i) for i in range(250)}
    log = tracker.start("exp", "many", owner="many", params=params, tags={})
    assert tracker.client.get_run(log.run_id).data.params == params


def test_the_listener_delivers_before_a_checkpoint(tracker):
    log = start(tracker)
    listen = mlflow_listener(log)
    listen(Event("step", 0, 2, 1, 4))
    listen(Event("step", 0, 2, 2, 4, {"train/loss": 1.0}))
    listen(Event("saving", 1, 2, 2, 4))
    assert history(log, "train/loss") == [(2, 1.0)]
    assert history(log, "epoch") == [(2, 0.0)]


def test_a_store_of_ones_own_and_a_wrong_one(tmp_path, monkeypatch):
    other = tmp_path / "other.db"
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{other}")
    start(Tracker(tmp_path / "home")).finish(State.COMPLETE)
    assert MlflowClient(f"sqlite:///{other}").get_experiment_by_name("exp") is not None


@pytest.mark.parametrize(
    "uri", ["nonsense://x", "http://127.0.0.1:9", "sqlite:////proc/x.db", "sqlite:///{}"]
)
def test_a_store_that_cannot_be_used_is_said_at_once(tmp_path, monkeypatch, uri):
    junk = tmp_path / "junk.db"
    junk.write_bytes(b"not a database" * 100)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", uri.format(junk))
    with pytest.raises(UserError, match="MLFLOW_TRACKING_URI"):
        Tracker(tmp_path / "home")


@pytest.mark.parametrize("home", ["/proc/nope", "/dev/null", "what?"])
def test_a_home_that_cannot_be_written_is_said_at_once(home):
    with pytest.raises(UserError, match="--home"):
        Tracker(Path(home))


def test_a_registered_model_points_at_the_runs_files(tracker, tmp_path):
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "weights").write_text("w")
    log = start(tracker)
    log.artifacts([tmp_path / "model"])

    def register(score, metric="val/accuracy"):
        tracker.register("exp", log.run_id, "model", metric, score, "max")
        found = tracker.client.get_model_version_by_alias("exp", "best")
        assert found.run_id == log.run_id
        return int(found.version)

    # The alias moves to what is better by the same metric, and to another metric's.
    assert [register(0.5), register(0.4), register(0.6), register(0.1, "val/macro_f1")] == [1, 1, 3, 4]
