"""Tests docs/tutorial.md: `mlcl init` prints the shown text, and every command runs as it is printed."""

import json
import os
import re
import shlex
import socket
import subprocess
import sys
from pathlib import Path
from urllib.request import Request, urlopen

import pytest
import torch
from patience import until
from typer.testing import CliRunner

from mlcl.cli.main import app
from mlcl.service.starter import first_job, first_sweep

ROOT = Path(__file__).resolve().parent.parent
PAGE = (ROOT / "docs/tutorial.md").read_text()
BLOCKS = re.findall(r"^```\n\$ (.+?)\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)
"""The commands of the page, each with its output."""
(PYTHON,) = re.findall(r"^```python\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)
COMMANDS = [command.replace("\\\n", " ") for command, _ in BLOCKS]


@pytest.fixture
def place(tmp_path, monkeypatch):
    """Returns the working directory of the tutorial: the checkout on two CPUs, without a sentence encoder."""
    monkeypatch.setattr(first_sweep, "usable_cpus", lambda: 2)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(first_job, "MODEL", "package:no-such-package")
    monkeypatch.setattr(first_job, "has_words", lambda: False)
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def mlcl(command):
    answer = CliRunner().invoke(app, shlex.split(command)[1:], catch_exceptions=False)
    assert answer.exit_code == 0, answer.output
    return answer.stdout


def test_it_is_seven_commands():
    assert len(COMMANDS) == 7


def test_the_first_prints_what_the_page_shows_and_the_second_takes_it(place):
    assert mlcl(COMMANDS[0]) == BLOCKS[0][1]
    assert "tfidf_svm" in mlcl(f"{COMMANDS[1]} --dry-run")


@pytest.mark.slow
def test_from_a_csv_to_a_served_model(place):
    """Every command runs in a shell as it is printed; the test waits for the server of the last one."""
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    with socket.create_server(("127.0.0.1", 0)) as sock:
        port = str(sock.getsockname()[1])
    *before, serve_command, ask_command = [command.replace("5001", port) for command in COMMANDS]
    for command in before:
        process = subprocess.run(
            command, shell=True, env=environment, capture_output=True, text=True, check=False
        )
        assert process.returncode == 0, process.stderr
    assert process.stdout.startswith("id,label,probability,label.area,error\n")
    process = subprocess.run([sys.executable, "-c", PYTHON], capture_output=True, text=True, check=False)
    assert process.returncode == 0, process.stderr
    assert process.stdout.startswith("Cannot tell whether the heads help")
    assert process.stdout.endswith("['A15-A19']\n")
    server = subprocess.Popen(
        f"exec {serve_command.replace('MLFLOW', 'env MLFLOW', 1)}", shell=True, env=environment
    )
    try:
        content = shlex.split(ask_command)[-1].encode()
        request = Request(
            f"http://127.0.0.1:{port}/invocations", content, {"Content-Type": "application/json"}
        )
        until(lambda: _answers(request))
        (prediction,) = json.loads(urlopen(request).read())["predictions"]
        assert prediction["label.area"] == "infections"
    finally:
        server.terminate()
        server.wait()


def _answers(request):
    try:
        return urlopen(request).status == 200
    except OSError:
        return False
