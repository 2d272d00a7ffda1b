"""Commands as a user runs them: real processes, real stores."""

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
import yaml
from builders import job_tree
from e2e.fork_server import ForkServer
from mlflow import MlflowClient
from patience import PATIENCE

fork_server = cache(ForkServer)
"""One for all tests of this process."""


@dataclass
class Answer:
    status: int
    out: str
    err: str

    @property
    def json(self):
        return json.loads(self.out)


class Cli:
    """`mlcl` in a folder of its own, with a job file on the tiny data set."""

    def __init__(self, folder: Path, data: Path):
        self.folder, self.home = folder, folder / "outputs"
        self.job = folder / "job.yaml"
        # Relative, as a user types it: it must mean the same in an actor.
        self.write_job(job_tree(Path(os.path.relpath(data, folder))))

    def write_job(self, tree):
        self.job.write_text(yaml.safe_dump(tree))

    def start(self, *arguments, **how):
        """The command as a process of its own, which a test may signal."""
        command = [sys.executable, "-m", "mlcl", *map(str, arguments)]
        return subprocess.Popen(
            command,
            cwd=self.folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=self.environment,
            start_new_session=True,
            **how,
        )

    def __call__(self, *arguments):
        """The command's answer when it has ended."""
        with TemporaryDirectory() as folder:
            out, err = Path(folder, "out"), Path(folder, "err")
            words = [str(argument) for argument in arguments]
            status = fork_server().run(words, self.folder, self.environment, (out, err), PATIENCE)
            return Answer(status, out.read_text(), err.read_text())

    @property
    def environment(self):
        return {**os.environ, "COLUMNS": "120"}

    @property
    def client(self):
        return MlflowClient(f"sqlite:///{self.home.resolve()}/mlflow.db")

    def runs(self, where=""):
        ids = [e.experiment_id for e in self.client.search_experiments()]
        return list(self.client.search_runs(ids, where))


@pytest.fixture
def mlcl(tmp_path, tiny):
    return Cli(tmp_path, tiny)
