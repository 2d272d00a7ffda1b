"""The settings of `mlcl up`, and its secrets."""

import re

import pytest

from mlcl.errors import UserError
from mlcl.service.local.settings import (
    ServiceFolder,
    Settings,
    UpOptions,
    check_storage,
    check_store,
    read_secret,
    resolve_settings,
)

URL = "postgresql+psycopg://ada:s3cret@127.0.0.1:9/mlflow"


@pytest.fixture
def folder(tmp_path):
    made = ServiceFolder(tmp_path / "home")
    made.make()
    return made


def test_the_defaults_are_the_home_s_own_store(folder):
    settings = resolve_settings(UpOptions(), folder, None)
    assert settings == Settings(f"sqlite:///{folder.home}/mlflow.db", f"{folder.home}/artifacts")
    check_storage(settings)


def test_paths_are_made_whole(folder, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    settings = resolve_settings(UpOptions(store="sqlite:///a.db", artifacts="kept"), folder, None)
    assert (settings.store, settings.artifacts) == (f"sqlite:///{tmp_path}/a.db", f"{tmp_path}/kept")
    assert (
        resolve_settings(UpOptions(store=f"sqlite:///{tmp_path}/a.db"), folder, None).store == settings.store
    )


@pytest.mark.parametrize(
    ("options", "key"),
    [
        (UpOptions(ray_port=80), "--ray-port"),
        (UpOptions(mlflow_port=70000), "--mlflow-port"),
        (UpOptions(dashboard_port=5000), "--mlflow-port"),
        (UpOptions(store="mysql://host/db"), "--store"),
        (UpOptions(store="store.db"), "--store"),
        (UpOptions(store=URL), "--store"),
        (UpOptions(store="postgresql://ada:s3cret@host:port/db"), "--store"),
        (UpOptions(store="sqlite:////proc/none/a.db"), "--store"),
        (UpOptions(artifacts="ftp://host/place"), "--artifacts"),
        (UpOptions(artifacts="/proc/none"), "--artifacts"),
    ],
)
def test_what_cannot_be_is_refused(folder, options, key):
    with pytest.raises(UserError) as caught:
        check_storage(resolve_settings(options, folder, None))
    assert caught.value.key == key
    assert "s3cret" not in str(caught.value)


def test_s3_needs_its_package(folder, monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(UserError, match="boto3"):
        check_storage(resolve_settings(UpOptions(artifacts="s3://bucket/mlflow"), folder, None))


def test_a_store_that_is_another_file_is_refused(tmp_path):
    (tmp_path / "notes.db").write_text("not a database " * 100)
    with pytest.raises(UserError, match="file is not a database"):
        check_store(f"sqlite:///{tmp_path}/notes.db")


def test_a_password_is_not_written_down(folder):
    shown = resolve_settings(UpOptions(store=URL), folder, None).shown
    assert shown.store == URL.replace("s3cret", "***")
    with pytest.raises(UserError, match="not written down"):
        check_store(resolve_settings(UpOptions(), folder, shown).store)


def test_what_runs_is_kept(folder):
    running = Settings("sqlite:////old.db", "/kept", 7001, 7002, 7003)
    assert resolve_settings(UpOptions(), folder, running) == running
    assert resolve_settings(UpOptions(ray_port=7001, store="sqlite:////old.db"), folder, running) == running
    with pytest.raises(UserError, match=re.escape("`mlcl down` ends it; found: 7004; allowed: 7003")):
        resolve_settings(UpOptions(mlflow_port=7004), folder, running)


def test_secrets_are_made_once_and_private(folder):
    files = (folder.ray_token, folder.mlflow_user, folder.mlflow_password)
    before = [read_secret(file) for file in files]
    assert len(set(before)) == 3
    assert [len(text) >= 32 for text in before] == [True, False, True]
    folder.ray_token.chmod(0o644)
    folder.make()
    assert [read_secret(file) for file in files] == before
    assert {file.stat().st_mode & 0o777 for file in files} == {0o600}
    assert folder.path.stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize("name", ["a%20b", "a?b", "a#b"])
def test_a_home_that_no_uri_can_hold_is_refused(tmp_path, name):
    with pytest.raises(UserError, match="SQLite") as caught:
        ServiceFolder(tmp_path / name).make()
    assert caught.value.key == "--home"
