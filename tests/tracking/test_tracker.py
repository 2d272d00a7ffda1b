"""The store itself: which one, whether it answers, what is registered in it."""

import socket
from pathlib import Path

import pytest
from mlflow import MlflowClient

from mlcl.errors import UserError
from mlcl.tracking import Tracker, dashboard, shown
from mlcl.tracking.network import check_reachable
from mlcl.tracking.uri import stored_uri


def test_a_store_of_ones_own(tmp_path, monkeypatch):
    other = tmp_path / "other.db"
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{other}")
    Tracker(tmp_path / "home").experiment("exp")
    assert MlflowClient(f"sqlite:///{other}").get_experiment_by_name("exp") is not None


@pytest.mark.parametrize(
    "uri", ["nonsense://x", "http://127.0.0.1:9", "sqlite:////proc/x.db", "sqlite:///{}", "file:///x", "runs"]
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


@pytest.mark.parametrize(
    ("uri", "safe"),
    [
        ("sqlite:////home/me/mlflow.db", "sqlite:////home/me/mlflow.db"),
        ("https://host:5000/x?y=1", "https://host:5000/x?y=1"),
        ("https://me:secret@host:5000", "https://me:***@host:5000"),
        ("postgresql+psycopg://me:s%40@host/db", "postgresql+psycopg://me:***@host/db"),
        ("https://me@host", "https://me@host"),
    ],
)
def test_a_password_is_hidden(uri, safe):
    assert shown(uri) == safe
    assert "secret" not in dashboard(uri)


def test_an_experiment_that_was_deleted_is_said(shared):
    tracker = shared("deleted").tracker
    tracker.client.delete_experiment(tracker.experiment("deleted"))
    with pytest.raises(UserError, match="deleted in MLflow"):
        tracker.experiment("deleted")


def test_who_only_reads_makes_no_store(tmp_path, monkeypatch):
    with pytest.raises(UserError, match=r"key --home: no runs were tracked here; found: .*typo"):
        Tracker.existing(tmp_path / "typo")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path}/none.db")
    with pytest.raises(UserError, match=r"no runs were tracked here; found: .*none\.db"):
        Tracker.existing(tmp_path / "home")
    assert not list(tmp_path.iterdir())
    Tracker(tmp_path / "home").experiment("exp")
    assert Tracker.existing(tmp_path / "home").client.get_experiment_by_name("exp") is not None


def test_each_artifact_of_a_run_has_versions_of_its_own_under_one_name(tmp_path):
    tracker = Tracker(tmp_path)
    run = tracker.client.create_run(tracker.experiment("exp")).info
    sources = [f"{run.artifact_uri}/{artifact}" for artifact in ("model", "pyfunc")]
    tracker.make_model("exp")
    for source in sources:
        tracker.client.create_model_version("exp", source, run.run_id)
    assert [tracker.versions(run.run_id, source) for source in sources] == [{"exp": "1"}, {"exp": "2"}]


def test_a_kill_while_the_store_is_made_leaves_no_half_of_it(tmp_path):
    """The tables are made in a file beside; what a killed command left of one is no hindrance."""
    (tmp_path / ".mlflow.db.1.partial").write_bytes(b"half")
    (tmp_path / ".mlflow.db.1.partial-journal").write_bytes(b"of it")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("mlflow.store.tracking.sqlalchemy_store.SqlAlchemyStore", lambda *_: 1 / 0)
        with pytest.raises(UserError, match="cannot be used"):
            Tracker(tmp_path)
    assert (tmp_path / "mlflow.db").stat().st_size == 0
    assert Tracker(tmp_path).experiment("its own")
    assert not list(tmp_path.glob(".mlflow.db*"))


def closed_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@pytest.mark.parametrize("scheme", ["http", "postgresql", "postgresql+psycopg"])
def test_a_server_that_does_not_answer_is_named_without_its_password(scheme, tmp_path):
    with pytest.raises(UserError, match="does not answer") as caught:
        check_reachable(f"{scheme}://me:secret@127.0.0.1:{closed_port()}/mlflow", tmp_path)
    assert "secret" not in caught.value.line()
    assert "me:***@127.0.0.1" in caught.value.line()


def test_a_database_that_listens_or_has_a_socket_is_left_to_mlflow(tmp_path):
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()
        check_reachable(f"postgresql+psycopg://me@127.0.0.1:{server.getsockname()[1]}/mlflow", tmp_path)
    check_reachable("postgresql+psycopg:///mlflow?host=/run/postgresql", tmp_path)
    assert (tmp_path / ".tracking.lock").exists()


@pytest.mark.parametrize(
    ("uri", "kept"),
    [
        ("sqlite:///{home}/mlflow.db", "sqlite:///HOME/mlflow.db"),
        ("sqlite:////other/mlflow.db", "sqlite:////other/mlflow.db"),
        ("https://me:pw@host", "https://me:***@host"),
    ],
)
def test_a_store_in_the_home_is_the_same_wherever_the_home_is(tmp_path, uri, kept):
    assert stored_uri(uri.format(home=tmp_path), tmp_path) == kept.format(home=tmp_path)
