"""Tests of MLflow's store: its choice, refusals of unusable stores, and registered models."""

import socket
import sqlite3
from contextlib import closing, suppress
from pathlib import Path

import pytest
from filelock import FileLock, Timeout
from mlflow.exceptions import MlflowException

from mlcl.errors import UserError
from mlcl.service.local.processes import free_port
from mlcl.tracking import Tracker, dashboard, hide_password
from mlcl.tracking.mlflow_private import LOCK, make_tables
from mlcl.tracking.network import check_reachable
from mlcl.tracking.registry import fetch_registered
from mlcl.tracking.uri import stored_uri


@pytest.mark.parametrize(
    "uri", ["nonsense://x", "http://127.0.0.1:9", "sqlite:////proc/x.db", "sqlite:///{}", "file:///x", "runs"]
)
def test_a_store_that_cannot_be_used_is_refused_at_once(tmp_path, monkeypatch, uri):
    file = tmp_path / "junk.db"
    file.write_bytes(b"not a database" * 100)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", uri.format(file))
    with pytest.raises(UserError, match="MLFLOW_TRACKING_URI"):
        Tracker(tmp_path / "home")


@pytest.mark.parametrize("home", ["/proc/nope", "/dev/null", "what?"])
def test_a_home_that_cannot_be_written_is_refused_at_once(home):
    with pytest.raises(UserError, match="--home"):
        Tracker(Path(home))


@pytest.mark.parametrize(
    ("uri", "safe", "stored"),
    [
        ("sqlite:////home/me/mlflow.db", None, None),
        ("https://host:5000/x?y=1", None, None),
        ("https://me:secret@host:5000", "https://me:***@host:5000", "https://me:***@host:5000"),
        ("postgresql+psycopg://me:s%40@host/db", "postgresql+psycopg://me:***@host/db", None),
        ("https://me@host", None, None),
        ("sqlite:///{home}/mlflow.db", None, "sqlite:///HOME/mlflow.db"),
    ],
)
def test_a_password_is_hidden_and_a_store_in_the_home_is_kept_relative_to_it(tmp_path, uri, safe, stored):
    uri = uri.format(home=tmp_path)
    assert hide_password(uri) == (safe or uri)
    assert "secret" not in dashboard(uri)
    assert stored_uri(uri, tmp_path) == (stored or safe or uri)


def test_the_pages_of_a_database_are_opened_by_mlflow_itself():
    command = "mlflow ui --backend-store-uri"
    assert dashboard("postgresql://me:secret@db/mlflow") == f"{command} 'postgresql://me:***@db/mlflow'"
    assert dashboard("sqlite:////home/me/mlflow.db") == f"{command} sqlite:////home/me/mlflow.db"
    assert dashboard("https://me:secret@host:5000") == "open https://me:***@host:5000"


@pytest.mark.parametrize(
    ("error", "reason"),
    [(TimeoutError(), "TimeoutError"), (OSError("\n"), "OSError"), (ValueError("\nwhy\nwhere"), "why")],
)
def test_the_reason_of_an_error_without_text_is_its_class(shared, error, reason):
    assert shared("reasons").tracker.reason(error) == reason


def test_an_experiment_that_was_deleted_is_refused(shared):
    tracker = shared("deleted").tracker
    tracker.client.delete_experiment(tracker.experiment("deleted"))
    with pytest.raises(
        UserError, match=r"deleted in MLflow; .* mlflow experiments restore -x \d+` restores it"
    ):
        tracker.experiment("deleted")


def test_a_location_that_cannot_be_written_is_refused_and_one_that_can_is_left_as_it_was(shared):
    tracker = shared("located").tracker
    tracker.client.create_experiment("nowhere", artifact_location="file:///proc/nope/x")
    with pytest.raises(
        UserError, match=r"key experiment: .* cannot be written; found: nowhere, at file:///pro"
    ):
        tracker.open_experiment("nowhere")
    location = tracker.open_experiment("located").artifact_location
    assert list(Path(location.removeprefix("file://")).iterdir()) == []


def test_a_runs_experiment_is_that_with_its_id_and_what_was_deleted_is_said(shared):
    tracker, messages = shared("before").tracker, []
    experiment = tracker.open_experiment("before")
    run_id = tracker.client.create_run(experiment.experiment_id).info.run_id
    tracker.client.rename_experiment(experiment.experiment_id, "after")
    assert tracker.open_experiment("before", run_id, messages.append).name == "after"
    assert messages == ["the experiment before is now after in MLflow, where this goes on"]
    assert tracker.client.get_experiment_by_name("before") is None
    tracker.client.delete_run(run_id)
    assert tracker.open_experiment("before", run_id, needs_run=False).name == "after"
    with pytest.raises(UserError, match=rf"the run was deleted .* mlflow runs restore --run-id {run_id}`"):
        tracker.open_experiment("before", run_id)
    tracker.client.delete_experiment(experiment.experiment_id)
    with pytest.raises(UserError, match="the experiment was deleted"):
        tracker.open_experiment("before", run_id, needs_run=False)
    # This run is from a store that was lost.
    assert tracker.open_experiment("before", "f" * 32).name == "before"


def test_an_error_of_the_database_is_raised_and_not_printed_by_mlflow_too(tmp_path, capsys):
    tracker = Tracker(tmp_path / "home", f"sqlite:///{tmp_path}/own.db")
    with closing(sqlite3.connect(tmp_path / "own.db")) as store, store:
        store.execute("ALTER TABLE runs RENAME TO gone")
    with pytest.raises(MlflowException, match="no such table: runs"):
        tracker.client.get_run("0" * 32)
    assert capsys.readouterr().err == ""


def test_who_only_reads_makes_no_store(tmp_path, monkeypatch):
    with pytest.raises(UserError, match=r"key --home: no runs were tracked here; found: .*typo"):
        Tracker.open_existing(tmp_path / "typo")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path}/other.db")
    with pytest.raises(UserError, match=r"no runs were tracked here; found: .*other\.db"):
        Tracker.open_existing(tmp_path / "home")
    assert not list(tmp_path.iterdir())
    Tracker(tmp_path / "home").experiment("exp")
    assert Tracker.open_existing(tmp_path / "home").client.get_experiment_by_name("exp") is not None
    assert (tmp_path / "other.db").exists()


def test_each_artifact_of_a_run_has_versions_of_its_own_under_one_name(shared, tmp_path):
    tracker = shared("versions").tracker
    run = tracker.client.create_run(tracker.experiment("versions")).info
    sources = [f"{run.artifact_uri}/{artifact}" for artifact in ("model", "pyfunc")]
    tracker.make_model("versions")
    for source in sources:
        tracker.client.create_model_version("versions", source, run.run_id)
    versions = [tracker.versions(run.run_id, source) for source in sources]
    assert versions == [{"versions": "1"}, {"versions": "2"}]
    with pytest.raises(UserError, match=r"no such registered model; found: models:/versions/1 \("):
        fetch_registered(tracker, "models:/versions/1", tmp_path)  # neither store has files


def test_a_kill_while_the_store_is_made_leaves_no_half_of_it(tmp_path):
    """Tests that tables are made in a temporary file, and that one left by a killed command does no harm."""
    (tmp_path / ".mlflow.db.1.partial").write_bytes(b"half")
    (tmp_path / ".mlflow.db.1.partial-journal").write_bytes(b"of it")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("mlflow.store.tracking.sqlalchemy_store.SqlAlchemyStore", lambda *_: 1 / 0)
        with pytest.raises(UserError, match="cannot be used"):
            Tracker(tmp_path)
    assert (tmp_path / "mlflow.db").stat().st_size == 0
    assert Tracker(tmp_path).experiment("its own")
    assert not list(tmp_path.glob(".mlflow.db*"))


def test_variables_of_mlflow_that_an_outer_tool_has_set_lead_nowhere_else(shared, monkeypatch):
    variables = {
        "RUN_ID": 32 * "0",
        "EXPERIMENT_ID": "77",
        "EXPERIMENT_NAME": "x",
        "REGISTRY_URI": "http://127.0.0.1:9",
    }
    for name, value in variables.items():
        monkeypatch.setenv(f"MLFLOW_{name}", value)
    logs = shared("outer")
    logs.start()
    logs.deliver("run")
    logs.tracker.make_model("outer")
    assert logs.tracker.client.get_registered_model("outer").name == "outer"
    assert logs.tracker.client.get_experiment(logs.run().info.experiment_id).name == "outer"
    assert logs.run().data.tags.get("mlflow.parentRunId") is None


def test_homes_that_share_a_new_store_make_its_tables_once(tmp_path, monkeypatch):
    store, waits = tmp_path / "shared" / "mlflow.db", []

    def make(file, artifacts):
        with suppress(Timeout), FileLock(file.parent / LOCK, timeout=0):
            pytest.fail("another home may make them now")
        waits.append(file)
        make_tables(file, artifacts)

    monkeypatch.setattr("mlcl.tracking.tracker.make_tables", make)
    store.parent.mkdir()
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        Tracker(tmp_path / name, f"sqlite:///{store}").experiment(name)
        if name == "one":
            inode = store.stat().st_ino
            monkeypatch.undo()
    assert waits == [store]
    assert store.stat().st_ino == inode


@pytest.mark.parametrize("scheme", ["http", "postgresql", "postgresql+psycopg"])
def test_a_server_that_does_not_answer_is_named_without_its_password(scheme, tmp_path):
    with pytest.raises(UserError, match="does not answer") as error:
        check_reachable(f"{scheme}://me:secret@127.0.0.1:{free_port()}/mlflow", tmp_path)
    assert "secret" not in error.value.line()
    assert "me:***@127.0.0.1" in error.value.line()


def test_a_database_that_listens_or_has_a_socket_is_left_to_mlflow(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as server:
        check_reachable(f"postgresql+psycopg://me@127.0.0.1:{server.getsockname()[1]}/mlflow", tmp_path)
    check_reachable("postgresql+psycopg:///mlflow?host=/run/postgresql", tmp_path)
    assert (tmp_path / ".tracking.lock").exists()
