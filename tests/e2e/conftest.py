"""Commands as a user runs them: real processes, real stores."""

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml
from builders import job_tree
from mlflow import MlflowClient
from patience import PATIENCE


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
        command = [sys.executable, "-m", "mlcl", *map(str, arguments)]
        return subprocess.Popen(
            command,
            cwd=self.folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "COLUMNS": "120"},
            start_new_session=True,
            **how,
        )

    def __call__(self, *arguments):
        process = self.start(*arguments)
        out, err = process.communicate(timeout=PATIENCE)
        return Answer(process.returncode, out, err)

    @property
    def client(self):
        return MlflowClient(f"sqlite:///{self.home.resolve()}/mlflow.db")

    def runs(self, where=""):
        ids = [e.experiment_id for e in self.client.search_experiments()]
        return list(self.client.search_runs(ids, where))


@pytest.fixture
def mlcl(tmp_path, tiny):
    return Cli(tmp_path, tiny)
