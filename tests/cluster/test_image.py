"""Tests commands of the image, which run in turn in a clean environment instead of a container."""

import base64
import json
import os
import re
import shlex
import shutil
import socket
import subprocess
import sys
import tempfile
import urllib.error
import urllib.request
from contextlib import contextmanager
from pathlib import Path

import pytest
import yaml
from databases import postgres, postgres_folder
from patience import PATIENCE, until

pytestmark = pytest.mark.slow

PASSWORD = "s3cret"


class Image:
    """The `gpu` target built into a folder, which replaces /opt/mlcl."""

    def __init__(self, root: Path, folder: Path):
        self.folder, self.root = folder, root
        self.dockerfile = (root / "docker" / "Dockerfile").read_text().replace("\\\n", "")
        self.compose = yaml.safe_load((root / "docker" / "compose.yaml").read_text())["services"]
        self.environment = {
            "PATH": f"{folder}/venv/bin:{Path(sys.executable).resolve().parent}:/usr/bin:/bin",
            "HOME": str(folder),
            **dict(
                word.split("=")
                for word in re.findall(r"^ENV (MLCL_HOME.*)$", self.dockerfile, re.MULTILINE)[0].split()
            ),
        }

    def build(self) -> None:
        source = self.folder / "source"
        source.mkdir()
        stages = dict(
            re.findall(r"^FROM \S+ AS (\S+)\n(.*?)(?=^FROM|\Z)", self.dockerfile, re.MULTILINE | re.DOTALL)
        )
        for line in [*stages["source"].splitlines(), *stages["build"].splitlines()]:
            verb, _, words = line.partition(" ")
            if verb == "COPY":
                for name in words.split()[:-1]:
                    subprocess.run(["cp", "-r", self.root / name, source / name], check=True)
            elif verb == "RUN":
                subprocess.run(self.here(words), shell=True, cwd=source, env=self.environment, check=True)

    def here(self, text: str) -> str:
        return text.replace("/opt/mlcl", str(self.folder))

    def entrypoint(self, command: list[str]) -> list[str]:
        assert json.loads(re.findall(r"^ENTRYPOINT (.*)$", self.dockerfile, re.MULTILINE)[0]) == [
            "/opt/mlcl/entrypoint.sh"
        ]
        return [str(self.root / "docker" / "entrypoint.sh"), *command]


@pytest.fixture(scope="module")
def image(root):
    with tempfile.TemporaryDirectory(prefix="mlcl-image-") as folder:
        image = Image(root, Path(folder))
        image.build()
        yield image


@contextmanager
def running(command, environment, folder):
    """Runs a process and ends it with SIGTERM, as a container engine does."""
    with (folder / "output").open("w") as output:
        process = subprocess.Popen(command, env=environment, cwd=folder, stdout=output, stderr=output)
    try:
        yield process
    finally:
        process.terminate()
        process.wait(PATIENCE)


def free_port():
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        return server.getsockname()[1]


def answer(port, path="/api/2.0/mlflow/experiments/search?max_results=1", *, password=None, host=None):
    request = urllib.request.Request(f"http://127.0.0.1:{port}{path}")
    if password:
        login = base64.b64encode(f"admin:{password}".encode()).decode()
        request.add_header("Authorization", f"Basic {login}")
    if host:
        request.add_header("Host", host)
    try:
        with urllib.request.urlopen(request, timeout=30) as response:
            return response.status
    except urllib.error.HTTPError as error:
        return error.code


def healthy(check, environment, before=()):
    process = subprocess.run([*before, *check], env=environment, capture_output=True, check=False)
    return process.returncode == 0


def test_the_image_has_the_commands(image):
    for command in ("mlcl --version", "ray --version", "mlflow --version"):
        words = image.entrypoint(shlex.split(command))
        process = subprocess.run(words, env=image.environment, capture_output=True, text=True, check=False)
        assert process.returncode == 0, process.stderr
    process = subprocess.run(
        ["python", "-m", "pip", "check"], env=image.environment, capture_output=True, text=True, check=False
    )
    assert process.returncode == 0, process.stdout


@pytest.mark.skipif(postgres_folder() is None, reason="PostgreSQL is not installed")
def test_mlflow_asks_for_a_password_and_knows_its_hosts(image, tmp_path):
    service, port = image.compose["mlflow"], free_port()
    for name, text in (("mlflow_user", "admin"), ("mlflow_password", PASSWORD * 3), ("mlflow_key", "key")):
        (tmp_path / name).write_text(text)
    with postgres() as url:
        address = url.partition("://")[2]
        user, password, folder = re.fullmatch(r"(.*):(.*)@/postgres\?host=(.*)", address).groups()
        (tmp_path / "postgres_password").write_text(password)

        def here(text):
            text = text.replace("mlflow@postgres/mlflow", f"{user}@/postgres?host={folder}")
            text = text.replace("s3://mlflow", str(tmp_path / "artifacts")).replace(
                "/run/secrets", str(tmp_path)
            )
            text = text.replace("/etc/mlflow_auth.ini", str(tmp_path / "auth.ini"))
            return text.replace("=0.0.0.0", "=127.0.0.1").replace("5000", str(port))

        (tmp_path / "auth.ini").write_text(here((image.root / "docker/mlflow_auth.ini").read_text()))
        command = image.entrypoint([here(word) for word in service["command"]])
        environment = image.environment | {
            name: here(value) for name, value in service["environment"].items()
        }
        check = [here(word) for word in service["healthcheck"]["test"][1:]]
        assert not healthy(check, environment)
        with running(command, environment, tmp_path):
            until(lambda: healthy(check, environment), every=1)
            assert answer(port) == 401
            assert answer(port, password="wrong") == 401
            assert answer(port, password=PASSWORD * 3) == 200
            assert answer(port, password=PASSWORD * 3, host=f"mlflow:{port}") == 200
            assert answer(port, password=PASSWORD * 3, host="elsewhere.example.org") == 403
        assert password not in (tmp_path / "output").read_text()


@pytest.mark.skipif(
    os.geteuid() != 0 or not shutil.which("ip"), reason="needs root and iproute2 for a network"
)
def test_the_image_is_a_ray_head_that_asks_for_a_token(image, tmp_path):
    (tmp_path / "ray_token").write_text("0123456789" * 4)
    command = image.entrypoint(json.loads(re.findall(r"^CMD (.*)$", image.dockerfile, re.MULTILINE)[0]))
    check = json.loads(re.findall(r"HEALTHCHECK.*CMD (.*)$", image.dockerfile, re.MULTILINE)[0])
    with tempfile.TemporaryDirectory(prefix="mlcl-") as scratch:
        environment = image.environment | {
            "RAY_TMPDIR": scratch,
            "RAY_AUTH_TOKEN_PATH": str(tmp_path / "ray_token"),
        }
        # The process has its own network, as a container has, because the image's ports are fixed.
        network = ["unshare", "--net", "sh", "-c", 'ip link set lo up; exec "$@"', "sh", *command]
        with running(network, environment, tmp_path) as process:
            enter_command = ["nsenter", "--target", str(process.pid), "--net"]
            until(lambda: healthy(check, environment, enter_command), every=1)
            list_command = ["ray", "list", "nodes", "--address", "http://127.0.0.1:8265", "--format", "json"]
            until(lambda: healthy(list_command, environment, enter_command), every=1)
            assert not healthy(list_command, environment | {"RAY_AUTH_MODE": "disabled"}, enter_command)
            (tmp_path / "ray_token").write_text("9876543210" * 4)
            assert not healthy(list_command, environment, enter_command)
