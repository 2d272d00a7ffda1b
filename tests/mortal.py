"""A command that is killed before, in the middle of or after one of its durable writes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from mlflow import MlflowClient

from mlcl.files import replace_text
from mlcl.store.database import Database, Transaction
from mlcl.tracking import cursor, log
from mlcl.tracking.log import append

CLIENT_WRITES = (
    "create_experiment",
    "create_run",
    "log_batch",
    "log_inputs",
    "log_artifact",
    "log_artifacts",
    "log_text",
    "update_run",
    "set_terminated",
    "create_registered_model",
    "create_model_version",
    "set_registered_model_alias",
)


class Killed(BaseException):
    """The exception of a killed process, which every later write raises, too."""


class Mortal:
    """Counts the points of a command at which a kill can matter, and kills the command at one of them.

    Every durable write has a point before and one after it; an append also has one in the middle of its line.
    """

    def __init__(self) -> None:
        self.count, self.at = 0, -1
        self.dead = False
        self.halves: dict[str, list[int]] = {}
        """The points in the middle of a file that is replaced, by the file's name."""

    def point(self) -> None:
        """Counts a point, and kills the command if it is the chosen one."""
        if self.dead or self.count == self.at:
            self.dead = True
            raise Killed
        self.count += 1

    def write(self, write: Callable, tear: Callable | None = None) -> Callable:
        """Returns the write with its points; `tear` writes the first half."""

        def wrapped(*args, **kwargs):
            self.point()
            if tear is tear_file:
                self.halves.setdefault(args[0].name, []).append(self.count)
            if tear is not None:
                if self.count == self.at:
                    tear(*args, **kwargs)
                self.point()
            result = write(*args, **kwargs)
            self.point()
            return result

        return wrapped

    def living(self, begin: Callable) -> Callable:
        """Returns the beginning of a write, which a killed process does not reach."""

        def wrapped(*args, **kwargs):
            if self.dead:
                raise Killed
            return begin(*args, **kwargs)

        return wrapped

    def install(self, patch: pytest.MonkeyPatch) -> None:
        """Replaces every durable write of the driver, its trainings and the delivery by one with points."""
        patch.setattr(Database, "transaction", self.living(Database.transaction))
        patch.setattr(Transaction, "commit", self.write(Transaction.commit))
        patch.setattr(log, "append", self.write(append, _tear_log))
        for module in (log, cursor):
            patch.setattr(module, "replace_text", self.write(replace_text, tear_file))
        for name in CLIENT_WRITES:
            patch.setattr(MlflowClient, name, self.write(getattr(MlflowClient, name)))


def _tear_log(path: Path, _entries: object) -> None:
    with path.open("ab") as file:
        file.write(b'{"kind":"metrics","st')


def tear_file(path: Path, text: str) -> None:
    """Writes half of the file beside it, as `replace_text` leaves it in a killed process."""
    path.with_name(f".{path.name}.dead.partial").write_text(text[: len(text) // 2])
