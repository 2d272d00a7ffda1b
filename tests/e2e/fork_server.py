"""A server that runs each `mlcl` command as a fork of one process, which saves some 5 s of imports.

A fork has its own session, environment, folder and standard streams; it ends as `python -m mlcl` does.
"""

from __future__ import annotations

import json
import os
import runpy
import select
import subprocess
import sys
from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path

IMPORTED = (
    "mlcl.cli.main",
    "mlcl.service.run_job",
    "mlflow.store.tracking.sqlalchemy_store",
    "sklearn.metrics",
    "sqlalchemy.dialects.sqlite",
    "torch._dynamo",
)
"""The modules that the server imports. Ray and Optuna are absent, as they read the environment on import."""


class ForkServer:
    """A handle on a server process, which ends with the process that started it."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, __file__], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def start(
        self,
        words: Sequence[str],
        folder: Path,
        environment: Mapping[str, str],
        streams: tuple[Path, Path],
        timeout: float,
    ) -> int:
        """Starts `mlcl WORDS` in a folder and returns its process id; `streams` are its output files."""
        request = [list(words), str(folder), dict(environment), [str(stream) for stream in streams]]
        return self._answer(request, timeout)

    def wait(self, pid: int, timeout: float) -> int:
        """Waits for a process that `start` started and returns its status; to be called once per process."""
        return self._answer(pid, timeout)

    def _answer(self, request: object, timeout: float) -> int:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        print(json.dumps(request), file=self._process.stdin, flush=True)
        ready, _, _ = select.select([self._process.stdout], [], [], timeout)
        assert ready, f"no end after {timeout} seconds: {request}"
        return int(self._process.stdout.readline())


def serve() -> None:
    """Answers each line of standard input: a command with its process id, a process id with its status.

    Returns only in the forks.
    """
    for name in IMPORTED:
        import_module(name)
    # Lines are read one by one, so that the buffers of a fork hold nothing of the next request.
    while line := sys.stdin.readline():
        request = json.loads(line)
        if isinstance(request, int):
            answer = os.waitstatus_to_exitcode(os.waitpid(request, 0)[1])
        elif (answer := os.fork()) == 0:
            return become(*request)
        sys.stdout.write(f"{answer}\n")
        sys.stdout.flush()
    sys.exit()


def become(words: list[str], folder: str, environment: dict[str, str], streams: list[str]) -> None:
    """Gives this process the session, folder, environment and streams of a command started in a folder."""
    os.setsid()
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    write_flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
    for number, (path, mode) in enumerate(
        [(os.devnull, os.O_RDONLY), *((stream, write_flags) for stream in streams)]
    ):
        descriptor = os.open(path, mode, 0o644)
        os.dup2(descriptor, number)
        os.close(descriptor)
    sys.argv = ["mlcl", *words]


if __name__ == "__main__":
    sys.path.pop(0)  # removes the folder of this file
    serve()
    runpy.run_module("mlcl", run_name="__main__", alter_sys=True)
