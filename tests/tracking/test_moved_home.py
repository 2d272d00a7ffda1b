"""Tests that MLflow's addresses of artifacts, by name or by id, follow a moved or copied home."""

import shutil
import sqlite3
from contextlib import closing

import pytest
from mlflow import MlflowClient
from mlflow.tracking._tracking_service.utils import _artifact_repos_cache

from mlcl.service.local.servers import mlflow_server
from mlcl.service.local.settings import ServiceFolder, resolve_settings
from mlcl.tracking import Tracker


class Home:
    """A home whose store can be prepared as `mlcl up` prepares it before the server starts."""

    def __init__(self, path):
        self.path = path

    def up(self):
        folder = ServiceFolder(self.path)
        folder.make()
        mlflow_server(resolve_settings({}, folder), folder).prepare()

    def open(self):
        Tracker(self.path)

    @property
    def client(self):
        _artifact_repos_cache.clear()  # a new command would be a new process, without this cache
        return MlflowClient(f"sqlite:///{self.path}/mlflow.db")

    def log(self, experiment):
        """Logs a run with an artifact through MLflow's client and returns the run's id."""
        run = self.client.create_run(experiment).info.run_id
        self.client.log_text(run, "kept", "a.txt")
        return run

    def found(self, run):
        """Returns the URI of a run's artifacts, after a check that the artifact of `log` is there."""
        self.client.download_artifacts(run, "a.txt")
        return self.client.get_run(run).info.artifact_uri

    def place(self, experiment):
        return self.client.get_experiment(experiment).artifact_location

    def set_place(self, experiment, place):
        with closing(sqlite3.connect(self.path / "mlflow.db")) as store, store:
            statement = "UPDATE experiments SET artifact_location = ? WHERE experiment_id = ?"
            store.execute(statement, (place, experiment))


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Returns a store as `mlcl up` makes it, made once because creating its tables takes long."""
    home = Home(tmp_path_factory.mktemp("made"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("importlib.util.find_spec", lambda name: name)
        home.up()
    return home.path / "mlflow.db"


@pytest.fixture
def home(tmp_path, made, monkeypatch):
    """Returns a home whose path has characters with a special meaning in SQL and in addresses."""
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: name)
    path = tmp_path / "my_home of ours"
    path.mkdir()
    shutil.copy(made, path)
    home = Home(path)
    home.up()
    return home


def by_id(home):
    """Creates an experiment whose artifacts lie under its id, as MLflow's server does, and returns the id."""
    id = home.client.create_experiment("served")
    home.set_place(id, f"{(home.path / 'artifacts').as_uri()}/{id}")
    return id


def by_name(home):
    return Tracker(home.path).experiment("two words")


@pytest.mark.parametrize("kind", [by_id, by_name])
@pytest.mark.parametrize("opened", [Home.up, Home.open])
@pytest.mark.parametrize("way", [shutil.move, shutil.copytree])
def test_artifacts_are_those_of_the_new_place(home, tmp_path, kind, opened, way):
    experiment = kind(home)
    run = home.log(experiment)
    for name in ("once", "twice"):
        old_path = home.path
        way(old_path, tmp_path / name)
        new_home = Home(tmp_path / name)
        before = {file: file.stat().st_mtime_ns for file in old_path.rglob("*")}
        opened(new_home)
        assert new_home.found(run).startswith(f"{new_home.path.as_uri()}/")
        new_run = new_home.log(experiment)
        assert new_home.found(new_run).startswith(f"{new_home.path.as_uri()}/")
        assert new_home.place("0") == f"{new_home.path.as_uri()}/artifacts/0"
        assert {file: file.stat().st_mtime_ns for file in old_path.rglob("*")} == before
        home = new_home


@pytest.mark.parametrize(
    "place",
    [
        "s3://lab/artifacts/{id}",
        "mlflow-artifacts:/{id}",
        "file:///data/artifacts/{id}",
        "file:///data/artifacts/mine",
        "file://{folder}/my-home%20of%20ours/artifacts/{id}",
        "file://{folder}/My_Home%20of%20ours/artifacts/{id}",
        "file://{folder}/my_home%20of%20ours-2/artifacts/{id}",
    ],
)
def test_what_was_never_the_homes_own_is_left(home, tmp_path, place):
    run = home.log(by_id(home))
    id = home.client.create_experiment("mine")
    place = place.format(id=id, folder=tmp_path)
    home.set_place(id, place)
    new_home = Home(shutil.move(home.path, tmp_path / "there"))
    new_home.up()
    assert new_home.place(id) == place
    assert new_home.found(run)


def test_a_store_elsewhere_is_not_this_homes(home, tmp_path, monkeypatch):
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{home.path}/mlflow.db")
    other = Home(tmp_path / "other")
    experiment = Tracker(other.path).experiment("of the other")
    run = home.log(experiment)
    new_home = Home(shutil.move(home.path, tmp_path / "there"))
    new_home.up()
    assert new_home.found(run).startswith(other.path.as_uri())
