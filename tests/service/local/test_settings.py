"""Tests of the settings and the secrets of `mlcl up`."""

import re

import pytest

from mlcl.errors import UserError
from mlcl.service.local.settings import (
    ServiceFolder,
    Settings,
    check_storage,
    read_secret,
    resolve_settings,
)

URL = "postgresql+psycopg://ada:s3cret@127.0.0.1:9/mlflow"


@pytest.fixture
def folder(tmp_path):
    service_folder = ServiceFolder(tmp_path / "home")
    service_folder.make()
    return service_folder


def test_the_defaults_are_the_home_s_own_store_and_paths_are_made_whole(folder, tmp_path, monkeypatch):
    settings = resolve_settings({}, folder)
    assert settings == Settings(f"sqlite:///{folder.home}/mlflow.db", f"{folder.home}/artifacts")
    check_storage(settings)
    monkeypatch.chdir(tmp_path)
    for store in ("sqlite:///a.db", f"sqlite:///{tmp_path}/a.db"):
        settings = resolve_settings({"store": store, "artifacts": "kept"}, folder)
        assert (settings.store, settings.artifacts) == (f"sqlite:///{tmp_path}/a.db", f"{tmp_path}/kept")


@pytest.mark.parametrize(
    ("options", "key"),
    [
        ({"ray_port": 80}, "--ray-port"),
        ({"mlflow_port": 70000}, "--mlflow-port"),
        ({"dashboard_port": 5000}, "--mlflow-port"),
        ({"store": "mysql://host/db"}, "--store"),
        ({"store": "store.db"}, "--store"),
        ({"store": URL}, "--store"),
        ({"store": "postgresql://ada:s3cret@host:port/db"}, "--store"),
        ({"store": "sqlite:////proc/none/a.db"}, "--store"),
        ({"store": f"sqlite:///{__file__}"}, "--store"),
        ({"artifacts": "ftp://host/place"}, "--artifacts"),
        ({"artifacts": "/proc/none"}, "--artifacts"),
    ],
)
def test_what_cannot_be_is_refused(folder, options, key):
    with pytest.raises(UserError) as error:
        check_storage(resolve_settings(options, folder))
    assert error.value.key == key
    assert "s3cret" not in str(error.value)


def test_s3_needs_its_package_and_a_password_that_is_not_written_down_is_asked_for(folder, monkeypatch):
    public = resolve_settings({"store": URL}, folder).without_password
    assert public.store == URL.replace("s3cret", "***")
    with pytest.raises(UserError, match="not saved"):
        check_storage(resolve_settings({}, folder, public))
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(UserError, match="boto3"):
        check_storage(resolve_settings({"artifacts": "s3://bucket/mlflow"}, folder))


def test_what_runs_is_kept(folder):
    settings = Settings("sqlite:////old.db", "/kept", 7001, 7002, 7003)
    assert resolve_settings({}, folder, settings) == settings
    assert resolve_settings({"ray_port": 7001, "store": "sqlite:////old.db"}, folder, settings) == settings
    with pytest.raises(UserError, match=re.escape("`mlcl down` ends it; found: 7004; allowed: 7003")):
        resolve_settings({"mlflow_port": 7004}, folder, settings)


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
    with pytest.raises(UserError, match="SQLite") as error:
        ServiceFolder(tmp_path / name).make()
    assert error.value.key == "--home"
