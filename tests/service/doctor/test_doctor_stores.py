"""What the doctor finds in MLflow and Optuna."""

import shutil
import sqlite3

import pytest
from doctored import left, look, start, statuses, tree
from mlflow import MlflowClient

from mlcl.service.doctor import healthy
from mlcl.tracking import State, Tracker, deliver_all, tracking_uri
from mlcl.tracking.cursor import Cursor
from mlcl.tracking.log import log_folder


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    """An empty store: to make its tables takes longer than a test."""
    home = tmp_path_factory.mktemp("store")
    Tracker(home)
    return home / "mlflow.db"


@pytest.fixture
def home(tmp_path, monkeypatch, store):
    monkeypatch.setenv("RAY_TMPDIR", str(tmp_path / "ray"))
    monkeypatch.chdir(tmp_path)
    home = tmp_path / "home"
    home.mkdir()
    shutil.copy(store, home)
    return home


def deliver(home):
    assert deliver_all(home, tracking_uri(home)) == 0
    return MlflowClient(tracking_uri(home))


def run_of(client, home, id):
    return client.get_run(Cursor.read(log_folder(home, id)).run_id)


def said(run):
    return run.info.status, run.data.tags["mlcl.state"]


def test_logs_are_delivered(home):
    left(home, state=State.COMPLETE)
    left(home, state=State.FAILED)
    before = tree(home)
    assert statuses(look(home, "delivery")) == ["FOUND", "FOUND"]
    assert tree(home) == before
    assert statuses(look(home, "delivery", fix=True)) == ["MENDED", "MENDED"]
    assert look(home) == []


def test_a_log_for_another_store_is_named(home):
    start(home, "other", "other", uri="http://elsewhere")
    (found,) = look(home, "delivery", fix=True)
    assert (found.status, found.mendable) == ("LEFT", False)
    assert "http://elsewhere" in found.why


def test_a_log_that_mlflow_refuses_is_tried_again_and_left_with_its_reason(home):
    _, log = left(home, state=State.STOPPED)
    client = deliver(home)
    client.delete_run(run_of(client, home, log.id).info.run_id)
    log.metrics({"m": 1.0}, 1)
    (found,) = look(home, "delivery", fix=True)
    assert found.status == "LEFT"
    assert "MLflow refused" in found.why


def test_a_store_that_does_not_answer_leaves_the_logs(home):
    uri = "http://127.0.0.1:9"
    start(home, "a", "a", uri=uri)
    found = look(home, "delivery", "mlflow-states", fix=True, uri=uri)
    assert statuses(found) == ["LEFT", "LEFT"]
    assert "does not answer" in found[1].why
    assert Cursor.read(log_folder(home, "a")).offset == 0


def test_a_state_that_is_not_the_logs_is_set_right(home):
    (_, complete), (_, failed) = left(home, state=State.COMPLETE), left(home, state=State.FAILED)
    failed.set_state(State.FAILED, "it diverged")
    client = deliver(home)
    assert look(home, "mlflow-states") == []
    ids = [run_of(client, home, log.id).info.run_id for log in (complete, failed)]
    client.update_run(ids[0], status="RUNNING")
    client.set_tag(ids[1], "mlcl.state", "PRUNED")
    before = tree(home)
    found = look(home, "mlflow-states")
    assert statuses(found) == ["FOUND", "FOUND"]
    assert tree(home) == before
    assert statuses(look(home, "mlflow-states", fix=True)) == ["MENDED", "MENDED"]
    assert look(home, "mlflow-states") == []
    assert [said(client.get_run(id)) for id in ids] == [("FINISHED", "COMPLETE"), ("FAILED", "FAILED")]
    assert client.get_run(ids[1]).data.tags["mlcl.reason"] == "it diverged"


def test_a_living_owners_run_is_left_alone(home):
    folder, log = left(home, state=State.COMPLETE)
    client = deliver(home)
    id = run_of(client, home, log.id).info.run_id
    client.update_run(id, status="RUNNING")
    with folder.owned() as mine:
        assert mine
        assert look(home, "mlflow-states", fix=True) == []
    assert client.get_run(id).info.status == "RUNNING"


def zombie(home, owner, log="gone"):
    tracker = Tracker(home)
    tags = {"mlcl.owner": owner, "mlcl.log": log, "mlcl.state": "RUNNING"}
    return tracker.client.create_run(tracker.experiment("exp"), tags=tags).info.run_id


def test_a_zombie_without_a_log_is_stopped_or_has_its_owners_state(home):
    (ended, log), (stopped, _) = left(home, state=State.COMPLETE), left(home, state=State.STOPPED)
    client = deliver(home)
    second = zombie(home, ended.path.name, log.id)
    lost = zombie(home, stopped.path.name)
    assert statuses(look(home, "mlflow-states", fix=True)) == ["MENDED", "MENDED"]
    assert said(client.get_run(second)) == ("FINISHED", "COMPLETE")
    assert said(client.get_run(lost)) == ("KILLED", "STOPPED")


def test_runs_of_another_home_are_counted_and_not_touched(home):
    ids = {zombie(home, "mlcl-elsewhere") for _ in range(5)}
    client = Tracker(home).client
    found = look(home, "mlflow-states", fix=True)
    assert statuses(found) == ["NOTE"]
    assert healthy(found)
    assert found[0].what.startswith("5 runs: ")
    assert {client.get_run(id).info.status for id in ids} == {"RUNNING"}


def test_a_killed_run_is_told_to_mlflow_in_one_go(home):
    _, log = left(home)
    client = deliver(home)
    assert [result.check for result in look(home)] == ["killed"]
    assert healthy(look(home, fix=True))
    assert said(run_of(client, home, log.id)) == ("KILLED", "STOPPED")
    assert look(home) == []


def test_a_store_that_cannot_be_written_is_named(home):
    store = home / "mlflow.db"
    store.write_bytes(b"no database, but long enough to be looked at as one" * 10)
    (found,) = look(home, "store", fix=True)
    assert (found.what, found.status) == (str(store), "LEFT")
    assert "not a database" in found.why


def test_a_busy_store_is_no_finding(home):
    connection = sqlite3.connect(home / "mlflow.db")
    connection.execute("BEGIN IMMEDIATE")
    assert look(home, "store") == []
    connection.close()
