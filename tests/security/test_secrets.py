"""Tests that no secret appears in a file, a log, MLflow, a job's description or a command line."""

import tempfile
import threading
import time
from pathlib import Path
from secrets import token_hex

import psutil
import pytest
import ray.job_submission
import yaml
from builders import job_tree
from e2e.conftest import Cli
from mlflow_servers import mlflow_server
from ray_jobs import Cluster
from typer.testing import CliRunner

from mlcl.cli.main import app
from mlcl.service.local.settings import read_secret

SPACE = {"space": {"train.lr": {"log_float": [0.005, 0.05]}}}
# Drawn anew in each session: a run stores the uncommitted changes of the code, which may include this file.
PASSWORD = token_hex(16)
OTHERS = {name: token_hex(16) for name in ("RAY_TOKEN", "HF_TOKEN", "AWS_SECRET_ACCESS_KEY", "LAB_PASSWORD")}


class Watch:
    """A context manager that collects the command lines of all child processes while it is open."""

    def __init__(self):
        self.lines, self._ended = set(), threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)

    def _look(self):
        while not self._ended.is_set():
            for process in psutil.Process().children(recursive=True):
                try:
                    self.lines.add(" ".join(process.cmdline()))
                except psutil.Error:
                    continue
            time.sleep(0.05)

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._ended.set()
        self._thread.join()


def files_with(secrets, *folders):
    """Returns the files with a secret in them, and the text around it, except for the password file."""
    return [
        (str(path), around(secret.encode(), path.read_bytes()))
        for folder in folders
        for path in Path(folder).rglob("*")
        if path.is_file() and not path.is_symlink() and path.name != "mlflow.password"
        for secret in secrets
        if secret.encode() in path.read_bytes()
    ]


def around(secret, text):
    start = text.index(secret)
    return text[max(0, start - 80) : start + 80]


@pytest.fixture
def server(tmp_path):
    """Starts MLflow as `mlcl up` does, and yields its address and password."""
    with mlflow_server(tmp_path / "server") as (tracking_server, folder):
        yield tracking_server.address, read_secret(folder.mlflow_password)


@pytest.mark.slow
def test_the_secrets_of_a_sweep(server, tmp_path, tiny, monkeypatch):
    uri, password = server
    secrets = (password, *OTHERS.values())
    (tmp_path / "work").mkdir()
    mlcl, outputs = Cli(tmp_path / "work", tiny), []
    space = mlcl.folder / "space.yaml"
    space.write_text(yaml.safe_dump(SPACE))
    for name, value in OTHERS.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", uri)
    monkeypatch.setenv("MLFLOW_TRACKING_USERNAME", "admin")
    monkeypatch.setenv("MLFLOW_TRACKING_PASSWORD", password)
    # The path is short because Ray creates sockets below it, and socket paths are limited in length.
    with tempfile.TemporaryDirectory(prefix="mlcl-", ignore_cleanup_errors=True) as rays:
        monkeypatch.setenv("RAY_TMPDIR", rays)
        sweep = ("sweep", mlcl.job, space, "--trials", 2, "--json")
        with Watch() as watch:
            for words, status in (
                (("run", mlcl.job, "--print-config"), 0),
                (("run", mlcl.job, "--dry-run", "--json"), 0),
                (("run", mlcl.job), 0),
                ((*sweep, "--dry-run"), 0),
                (sweep, 0),
                (("doctor", "--json"), None),
                (("doctor",), None),
            ):
                answer = mlcl(*words)
                assert answer.status == status or status is None, answer.err
                outputs.append(answer.out + answer.err)
            monkeypatch.setenv("MLFLOW_TRACKING_PASSWORD", f"{password}-wrong")
            for words in (("run", mlcl.job, "train.seed=9"), (*sweep, "--name", "other")):
                answer = mlcl(*words)
                assert answer.status == 2
                outputs.append(answer.out + answer.err)
        assert len(watch.lines) > 5
        assert files_with(secrets, mlcl.folder, rays, tmp_path / "server") == []
    assert [secret for secret in secrets if secret in "".join([*outputs, *watch.lines])] == []


def test_the_secrets_of_a_submitted_job(tmp_path, tiny, monkeypatch):
    cluster, staged_texts = Cluster(), []
    monkeypatch.setattr(ray.job_submission, "JobSubmissionClient", cluster)
    for name, value in OTHERS.items():
        monkeypatch.setenv(name, value)
    work = tmp_path / "work"
    work.mkdir()
    monkeypatch.chdir(work)
    lab = {
        "ray": {"address": "http://head:8265", "token": {"env": "RAY_TOKEN"}},
        "mlflow": {
            "uri": "http://mlflow:5000",
            "username": {"env": "LAB_PASSWORD"},
            "password": {"file": "lab.password"},
        },
        "storage": "/mnt/lab",
        "env": {"HF_TOKEN": {"env": "HF_TOKEN"}, "AWS_SECRET_ACCESS_KEY": {"env": "AWS_SECRET_ACCESS_KEY"}},
    }
    for name, tree in (("job", job_tree(tiny)), ("lab", lab)):
        (work / f"{name}.yaml").write_text(yaml.safe_dump(tree))
    for name in ("lab.password", ".env", "server.pem"):
        (work / name).write_text(OTHERS["LAB_PASSWORD"])
    submit = cluster.submit_job

    def submit_job(**options):
        folder = Path(options["runtime_env"]["working_dir"])
        staged_texts.extend(path.read_text() for path in folder.rglob("*") if path.is_file())
        submit(**options)

    monkeypatch.setattr(cluster, "submit_job", submit_job)
    output = ""
    for words in (
        ("submit", "--dry-run", "run", "job.yaml"),
        ("submit", "--dry-run", "--json", "run", "job.yaml"),
        ("submit", "--id", "a", "--json", "run", "job.yaml"),
        ("submit", "--id", "a", "run", "job.yaml"),
        ("status", "a", "--json"),
        ("list", "--json"),
        ("stop", "a"),
        ("resume", "a"),
    ):
        answer = CliRunner().invoke(app, [words[0], "--cluster", "lab.yaml", *words[1:]])
        output += f"{answer.output} {answer.exception}"
    assert len(cluster.jobs) == 2
    job_texts = [f"{vars(job)}" for job in cluster.jobs.values()]
    file_texts = [path.read_text() for path in (work / "outputs").rglob("*") if path.is_file()]
    assert staged_texts
    assert file_texts
    text = "\n".join([output, *job_texts, *staged_texts, *file_texts])
    assert [secret for secret in OTHERS.values() if secret in text] == []
    assert cluster.headers == {"Authorization": f"Bearer {OTHERS['RAY_TOKEN']}"}
