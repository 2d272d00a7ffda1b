"""Tests that a folder of artifacts that is logged again replaces the old folder and nothing else."""

from pathlib import Path

import pytest
from mlflow_servers import mlflow_server

from mlcl.errors import UserError
from mlcl.service.local.settings import read_secret
from mlcl.tracking import Tracker
from mlcl.tracking.tracker import replace_artifacts


def write(folder, *names):
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(f"{folder.name}/{name}")
    return folder


@pytest.fixture(scope="module", params=["file", pytest.param("server", marks=pytest.mark.slow)])
def tracker(request, tmp_path_factory):
    home = tmp_path_factory.mktemp("home")
    if request.param == "file":
        yield Tracker(home, None)
        return
    with mlflow_server(home) as (server, folder), pytest.MonkeyPatch.context() as patch:
        patch.setenv("MLFLOW_TRACKING_USERNAME", read_secret(folder.mlflow_user))
        patch.setenv("MLFLOW_TRACKING_PASSWORD", read_secret(folder.mlflow_password))
        yield Tracker(home, server.address)


@pytest.fixture
def run_id(tracker):
    return tracker.client.create_run(tracker.experiment("it")).info.run_id


def listed(tracker, run_id, folder):
    items = tracker.client.list_artifacts(run_id, folder)
    return {item.path for item in items if not item.is_dir}


def test_the_new_folder_takes_the_old_ones_place(tracker, run_id, tmp_path):
    first = write(tmp_path / "first", "page", "plots/a", "plots/b")
    second = write(tmp_path / "second", "page", "plots/b", "plots/c")
    tracker.client.log_artifact(run_id, str(first / "page"), "another")
    replace_artifacts(tracker, run_id, first, "report")
    assert listed(tracker, run_id, "report/plots") == {"report/plots/a", "report/plots/b"}
    replace_artifacts(tracker, run_id, second, "report")
    assert listed(tracker, run_id, "report/plots") == {"report/plots/b", "report/plots/c"}
    assert listed(tracker, run_id, "another") == {"another/page"}
    path = tracker.client.download_artifacts(run_id, "report/page", str(tmp_path))
    assert Path(path).read_text() == "second/page"


def test_where_nothing_may_be_deleted_it_stays(tracker, run_id, tmp_path, monkeypatch):
    class Locked:
        def delete_artifacts(self, path):
            raise PermissionError(path)

    monkeypatch.setattr("mlcl.tracking.tracker.artifact_store", lambda *_, **__: Locked())
    replace_artifacts(tracker, run_id, write(tmp_path / "first", "a"), "report")
    replace_artifacts(tracker, run_id, write(tmp_path / "second", "b"), "report")
    assert listed(tracker, run_id, "report") == {"report/a", "report/b"}


def test_an_interrupted_upload_leaves_nothing(tracker, run_id, tmp_path, monkeypatch):
    folder = write(tmp_path / "it", "page", "plots/a")

    def interrupted(run_id, folder, artifact):
        tracker.client.log_artifact(run_id, f"{folder}/page", artifact)
        raise KeyboardInterrupt

    monkeypatch.setattr(tracker.client, "log_artifacts", interrupted)
    with pytest.raises(KeyboardInterrupt):
        replace_artifacts(tracker, run_id, folder, "report")
    assert not tracker.client.list_artifacts(run_id)


def test_a_store_that_takes_nothing(tracker, run_id, tmp_path):
    folder = write(tmp_path / "it", "page")
    uri = tracker.client.get_run(run_id).info.artifact_uri
    if not uri.startswith("file:"):
        pytest.skip("needs a folder to be in the way of")
    Path(uri.removeprefix("file://")).parent.mkdir(parents=True, exist_ok=True)
    Path(uri.removeprefix("file://")).write_text("in the way")
    with pytest.raises(UserError, match="key report: MLflow does not take these files; found: run"):
        replace_artifacts(tracker, run_id, folder, "report")
