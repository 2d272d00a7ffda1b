"""Fixtures that run `mlcl` commands as a user does, with real processes and stores."""

import os
import shutil
from dataclasses import dataclass
from functools import cache
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
import yaml
from builders import job_tree
from commands import Answer
from e2e.fork_server import ForkServer
from mlflow import MlflowClient
from patience import PATIENCE

from mlcl.tracking import Tracker

fork_server = cache(ForkServer)
"""Returns the fork server that all tests of a process share."""


@dataclass
class Started:
    """A command that has been started, whose output and errors go to two files."""

    pid: int
    out: Path
    err: Path

    def answer(self):
        """Waits for the end of the command and returns its status, output and errors."""
        status = fork_server().wait(self.pid, PATIENCE)
        return Answer(status, self.out.read_text(), self.err.read_text())


class Cli:
    """The command `mlcl` in a folder of its own, with a job file on the tiny data set."""

    def __init__(self, folder: Path, data: Path):
        self.folder, self.home = folder, folder / "outputs"
        # The streams lie outside the folder, since the folder is copied for a submitted job.
        self._streams, self._numbers = TemporaryDirectory(), count()
        self.job = folder / "job.yaml"
        # The path is relative, as a user types it; it must lead to the same data in an actor.
        self.write_job(job_tree(Path(os.path.relpath(data, folder))))

    def write_job(self, tree):
        self.job.write_text(yaml.safe_dump(tree))

    def start(self, *arguments):
        """Starts the command as a process of its own, to which a test may send signals."""
        number = next(self._numbers)
        out, err = (Path(self._streams.name, f"{name}-{number}") for name in ("out", "err"))
        for stream in (out, err):
            stream.touch()  # A test may read a file before the process has opened it.
        words = [str(argument) for argument in arguments]
        pid = fork_server().start(words, self.folder, self.environment, (out, err), PATIENCE)
        return Started(pid, out, err)

    def __call__(self, *arguments):
        """Runs the command and returns its answer."""
        return self.start(*arguments).answer()

    @property
    def environment(self):
        return {**os.environ, "COLUMNS": "120"}

    @property
    def client(self):
        return MlflowClient(f"sqlite:///{self.home.resolve()}/mlflow.db")

    def runs(self, where=""):
        ids = [e.experiment_id for e in self.client.search_experiments()]
        return list(self.client.search_runs(ids, where))


@pytest.fixture(scope="session")
def tables(tmp_path_factory):
    """Returns a home whose MLflow store has empty tables, so that a command need not create them."""
    return Tracker(tmp_path_factory.mktemp("tables")).home


@pytest.fixture
def mlcl(tmp_path, tiny, tables):
    cli = Cli(tmp_path, tiny)
    shutil.copytree(tables, cli.home)
    return cli
