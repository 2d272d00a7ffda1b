"""Tests that passwords in URLs are refused on the command line, and neither shown nor stored.

tests/service/local/test_settings.py tests the errors of databases after a wrong password.
"""

import json
import subprocess

import pytest
import yaml
from builders import job_tree
from typer.testing import CliRunner

from mlcl.cli.main import app
from mlcl.errors import UserError
from mlcl.tracking import Tracker, hide_password
from mlcl.tracking.provenance import provenance

URLS = (
    "postgresql+psycopg://ada:hunter2@127.0.0.1:1/db",
    "postgresql+psycopg://ada@127.0.0.1:1/db?password=hunter2",
    "postgresql+psycopg://127.0.0.1:1/db?user=ada&sslpassword=hunter2&connect_timeout=1",
    "postgresql://ada:hunter2@127.0.0.1:1/db",
    "mysql://ada:hunter2@127.0.0.1:1/db",
    "http://ada:hunter2@127.0.0.1:1",
    "http://ada:hunter2@[::1",
    "ada:hunter2@127.0.0.1:1",
    "sqlite:////nowhere/mlflow.db?password=hunter2",
)


@pytest.mark.parametrize("url", URLS)
def test_a_tracking_uri(tmp_path, url):
    if "://" in url:
        assert "hunter2" not in hide_password(url)
    if url not in URLS[:4]:  # the drivers of these databases would wait for an answer
        with pytest.raises(UserError) as error:
            Tracker(tmp_path / "home", url)
        assert error.value.key == "MLFLOW_TRACKING_URI"
        assert "hunter2" not in error.value.line() + json.dumps(error.value.as_dict())


@pytest.fixture
def mlcl(tmp_path, tiny, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "job.yaml").write_text(yaml.safe_dump(job_tree(tiny)))
    (tmp_path / "space.yaml").write_text("space: {train.lr: {log_float: [0.001, 0.1]}}")
    return lambda *words: CliRunner().invoke(app, words)


@pytest.mark.parametrize("url", URLS[:4])
def test_a_typed_password_is_refused(mlcl, url):
    error = mlcl("up", "--store", url).exception
    assert isinstance(error, UserError)
    assert "a command line is public: no password in it" in error.line()
    assert "hunter2" not in error.line()


def test_the_same_in_a_variable_is_not_shown(mlcl, monkeypatch):
    monkeypatch.setenv("MLFLOW_TRACKING_URI", URLS[0])
    answer = mlcl("sweep", "job.yaml", "space.yaml", "--dry-run", "--json")
    assert answer.exit_code == 0, answer.output
    assert "hunter2" not in answer.output
    assert "ada:***@" in answer.output


def test_where_code_comes_from_has_no_address_of_a_remote(tmp_path):
    for words in (
        ("init", "-q"),
        ("remote", "add", "origin", "https://ada:hunter2@host/x.git"),
        ("-c", "user.name=a", "-c", "user.email=a@b.c", "commit", "-q", "--allow-empty", "-m", "one"),
    ):
        subprocess.run(["git", "-C", str(tmp_path), *words], check=True)
    (tmp_path / "new.yaml").touch()
    source = provenance(tmp_path)
    assert source.tags["mlcl.git.dirty"] == "true"
    assert "hunter2" not in f"{source}"
