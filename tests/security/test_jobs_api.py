"""Tests that `mlcl list`, `submit` and similar commands name the key of a wrong or missing secret.

tests/e2e/test_up.py tests Ray's own server.
"""

import os
import signal
import subprocess
import sys
from pathlib import Path

import local_servers
import pytest
import yaml
from builders import job_tree
from patience import until
from typer.testing import CliRunner

from mlcl.cli.main import app
from mlcl.errors import UserError
from mlcl.service.local.processes import free_port
from mlcl.tracking.network import get

TOKEN, WRONG = "right-5f2d", "wrong-9c1e"
COMMANDS = (
    ("list",), ("status", "lab-1"), ("logs", "lab-1"), ("logs", "-f", "lab-1"), ("stop", "lab-1"),
    ("resume", "lab-1"), ("submit", "run", "job.yaml"),
)  # fmt: skip


@pytest.fixture(scope="module")
def head(tmp_path_factory):
    """Starts a stand-in for Ray's head that asks for the token, and yields its address."""
    folder = tmp_path_factory.mktemp("head")
    (folder / "token").write_text(TOKEN)
    port = free_port()
    script = Path(local_servers.__file__)
    server = subprocess.Popen(
        [sys.executable, str(script), "ray", str(port)],
        cwd=folder,
        env={"RAY_AUTH_TOKEN_PATH": str(folder / "token"), "PATH": "/usr/bin:/bin"},
        start_new_session=True,
    )
    try:
        until(lambda: get(f"http://127.0.0.1:{port}/api/version").status == 401)
        yield f"http://127.0.0.1:{port}"
    finally:
        os.killpg(server.pid, signal.SIGKILL)
        server.wait()


@pytest.fixture
def mlcl(tmp_path, tiny, head, monkeypatch):
    """Returns a function that runs `mlcl` in a folder with a job and a cluster file."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "job.yaml").write_text(yaml.safe_dump(job_tree(tiny)))

    def call(words, **token):
        tree = {"ray": {"address": head, **token}, "storage": "/mnt/lab"}
        (tmp_path / "lab.yaml").write_text(yaml.safe_dump(tree))
        monkeypatch.setenv("MLCL_CLUSTER", "lab.yaml")
        return CliRunner().invoke(app, words)

    return call


@pytest.mark.parametrize(
    ("value", "token", "begins"),
    [
        (None, {}, "lab.yaml, key ray.token: the cluster asks for a token; found: none"),
        (
            WRONG,
            {"token": {"env": "LAB_TOKEN"}},
            "lab.yaml, key ray.token: the cluster does not take this token; found: http://127",
        ),
        (
            None,
            {"token": {"env": "LAB_TOKEN"}},
            "key ray.token: the variable is not set, or is empty; found: LAB_TOKEN",
        ),
    ],
    ids=["none", "wrong", "not set"],
)
@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_without_the_token_a_command_is_one_error(mlcl, monkeypatch, tmp_path, words, value, token, begins):
    if value is None:
        monkeypatch.delenv("LAB_TOKEN", raising=False)
    else:
        monkeypatch.setenv("LAB_TOKEN", value)
    answer = mlcl(words, **token)
    assert isinstance(answer.exception, UserError)
    assert answer.exception.line().startswith(begins)
    assert WRONG not in answer.exception.line()
    assert not (tmp_path / "outputs").exists()


def test_a_token_that_is_no_header(mlcl, monkeypatch):
    monkeypatch.setenv("LAB_TOKEN", "a\r\nX-Evil: 1")
    answer = mlcl(["list"], token={"env": "LAB_TOKEN"})
    assert isinstance(answer.exception, UserError)
    assert "X-Evil" not in answer.exception.line()


def test_with_the_token(mlcl, monkeypatch):
    monkeypatch.setenv("LAB_TOKEN", TOKEN)
    answer = mlcl(["list"], token={"env": "LAB_TOKEN"})
    assert answer.exit_code == 0, answer.output
    assert TOKEN not in answer.output
