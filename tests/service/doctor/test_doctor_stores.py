"""Tests of the doctor's checks of MLflow's store."""

import shutil
import sqlite3

import pytest
from doctored import left, look, mended, start, statuses
from mlflow import MlflowClient

from mlcl.service.doctor import is_healthy
from mlcl.tracking import State, Tracker, tracking_uri
from mlcl.tracking.cursor import Cursor
from mlcl.tracking.delivery import deliver_all
from mlcl.tracking.log import log_folder


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    """Returns an empty store, made once because creating its tables takes longer than a test."""
    home = tmp_path_factory.mktemp("store")
    Tracker(home)
    return home / "mlflow.db"


@pytest.fixture
def home(tmp_path, monkeypatch, store):
    monkeypatch.chdir(tmp_path)
    home = tmp_path / "home"
    home.mkdir()
    shutil.copy(store, home)
    return home


def delivered(home, *logs):
    """Delivers all logs, and returns MLflow's client and the ids of the runs of the given logs."""
    assert deliver_all(home, tracking_uri(home)) == 0
    ids = [Cursor.read(log_folder(home, log.id)).run_id for log in logs]
    return MlflowClient(tracking_uri(home)), *ids


def said(client, id):
    run = client.get_run(id)
    return run.info.status, run.data.tags["mlcl.state"]


def zombie(home, owner, log="gone"):
    """Creates a running MLflow run to which no log is delivered, and returns its id."""
    tracker = Tracker(home)
    tags = {"mlcl.owner": owner, "mlcl.log": log, "mlcl.state": "RUNNING"}
    return tracker.client.create_run(tracker.experiment("exp"), tags=tags).info.run_id


def test_logs_are_delivered_and_a_killed_run_ends_in_mlflow_in_one_go(home):
    left(home, state=State.COMPLETE)
    left(home, state=State.FAILED)
    assert len(mended(home, "delivery")) == 2
    assert look(home) == []
    _, log = left(home)
    client, id = delivered(home, log)
    assert [result.check for result in look(home)] == ["killed"]
    assert is_healthy(look(home, fix=True))
    assert said(client, id) == ("KILLED", "STOPPED")
    assert look(home) == []


def test_logs_that_cannot_be_delivered_are_left_with_the_reason(home):
    _, log = left(home, state=State.STOPPED)
    client, id = delivered(home, log)
    client.delete_run(id)
    log.log_metrics({"m": 1.0}, 1)
    start(home, "odd", "odd").log_params({"k" * 251: "1"})
    start(home, "other", "other", uri="http://127.0.0.1:9")
    deliver_all(home, tracking_uri(home))
    deleted_result, odd_result, other_result = look(home, "delivery", fix=True)
    assert {deleted_result.status, odd_result.status, other_result.status} == {"LEFT"}
    assert (deleted_result.mendable, odd_result.mendable, other_result.mendable) == (False, True, False)
    assert "its run was deleted in MLflow" in deleted_result.why
    assert deleted_result.cure.endswith(f"mlflow runs restore --run-id {id}`, then --fix")
    assert "MLflow refused them ('Param key' exceeds" in odd_result.why
    assert "for http://127.0.0.1:9" in other_result.why
    *_, unreachable_result = look(home, "delivery", "mlflow-states", fix=True, uri="http://127.0.0.1:9")
    assert "does not answer" in unreachable_result.why
    assert Cursor.read(log_folder(home, "other")).offset == 0


def test_a_state_that_is_not_the_logs_is_set_right(home):
    (folder, complete_log), (_, failed_log) = left(home, state=State.COMPLETE), left(home, state=State.FAILED)
    failed_log.set_state(State.FAILED, "it diverged")
    client, *ids = delivered(home, complete_log, failed_log)
    assert look(home, "mlflow-states") == []
    client.update_run(ids[0], status="RUNNING")
    with folder.try_lock():
        assert look(home, "mlflow-states", fix=True) == []  # the run's own command is still running
    client.set_tag(ids[1], "mlcl.state", "PRUNED")
    assert len(mended(home, "mlflow-states")) == 2
    assert [said(client, id) for id in ids] == [("FINISHED", "COMPLETE"), ("FAILED", "FAILED")]
    assert client.get_run(ids[1]).data.tags["mlcl.reason"] == "it diverged"


def test_a_zombie_without_a_log_is_stopped_or_has_its_owners_state(home):
    (ended_folder, log), (stopped_folder, _) = (
        left(home, state=State.COMPLETE),
        left(home, state=State.STOPPED),
    )
    client, _ = delivered(home, log)
    second_id, lost_id = zombie(home, ended_folder.path.name, log.id), zombie(home, stopped_folder.path.name)
    assert len(mended(home, "mlflow-states")) == 2
    assert [said(client, id) for id in (second_id, lost_id)] == [
        ("FINISHED", "COMPLETE"),
        ("KILLED", "STOPPED"),
    ]


def test_runs_of_another_home_are_counted_and_not_touched(home):
    ids = {zombie(home, "mlcl-elsewhere") for _ in range(5)}
    client = Tracker(home).client
    results = look(home, "mlflow-states", fix=True)
    assert statuses(results) == ["NOTE"]
    assert is_healthy(results)
    assert results[0].what.startswith("5 runs: ")
    assert {client.get_run(id).info.status for id in ids} == {"RUNNING"}


def test_a_store_that_was_replaced_by_an_older_copy_is_named(home):
    _, early_log = left(home, state=State.COMPLETE)
    delivered(home, early_log)
    _, log = left(home, state=State.COMPLETE)
    _, deleted_log = left(home, state=State.COMPLETE)
    client, _, deleted_id = delivered(home, log, deleted_log)
    client.delete_run(deleted_id)
    assert look(home) == []
    # MLflow's client keeps a store open by its path: rows are removed as the copy lacks them.
    with sqlite3.connect(home / "mlflow.db") as store:
        for table in ("tags", "latest_metrics", "metrics", "params", "inputs"):
            key = "destination_id" if table == "inputs" else "run_uuid"
            store.execute(f"DELETE FROM {table} WHERE {key} = ?", (Cursor.of(home, log.id).run_id,))
        store.execute("DELETE FROM runs WHERE run_uuid = ?", (Cursor.of(home, log.id).run_id,))
    (result,) = results = look(home, fix=True)
    assert (result.check, result.what, is_healthy(results)) == ("mlflow-states", f"1 log: {log.id}", True)
    assert "the store is an older copy; without cursor.json in" in result.why
    (log_folder(home, log.id) / "cursor.json").unlink()
    assert statuses(look(home, "delivery", fix=True)) == ["MENDED"]
    assert look(home) == []
    assert said(client, Cursor.of(home, log.id).run_id) == ("FINISHED", "COMPLETE")


def test_a_store_that_cannot_be_written_is_named_and_a_busy_one_is_not(home):
    store = home / "mlflow.db"
    connection = sqlite3.connect(store)
    connection.execute("BEGIN IMMEDIATE")
    assert look(home, "store") == []
    connection.close()
    store.write_bytes(b"no database, but long enough to be looked at as one" * 10)
    (result,) = look(home, "store", fix=True)
    assert (result.what, result.status) == (str(store), "LEFT")
    assert "not a database" in result.why
