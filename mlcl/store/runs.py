"""The runs, sweeps and tables of a home: each has a folder, and a row in the home's database."""

from __future__ import annotations

import os
import secrets
import shlex
from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path

from mlcl.backports import StrEnum
from mlcl.files import is_locked, lock_file
from mlcl.store.database import Database


class State(StrEnum):
    """The state of a run, sweep, table or training, for the database, MLflow and the command line."""

    RUNNING = "RUNNING"
    COMPLETE = "COMPLETE"
    PRUNED = "PRUNED"
    FAILED = "FAILED"
    BUDGET = "BUDGET"
    STOPPED = "STOPPED"


LOCK = ".lock"
"""The lock file in the folder of a run, sweep or table, held by the process that works in it."""
RESUMABLE = (State.RUNNING, State.STOPPED, State.BUDGET)
"""The states of runs that can be resumed. A run that is RUNNING without a living process was killed."""


def new_id() -> str:
    """Returns a new id of the form `mlcl-<UTC time>-<random>`; ids sort by time."""
    return f"mlcl-{datetime.now(timezone.utc):%Y%m%d-%H%M%S}-{secrets.token_hex(3)}"


def home_option(home: Path) -> str:
    """Returns ` --home HOME` for a command in a message; empty if commands use this home without it."""
    default_home = Path(os.environ.get("MLCL_HOME", "outputs")).expanduser()
    return "" if home == default_home else f" --home {shlex.quote(str(home))}"


@dataclass(frozen=True)
class RunRecord:
    """The record of one run, sweep or table in the home's database.

    `number` counts the home's records from 1. `kind` is `runs`, `sweeps` or `tables`. `name` is the user's
    name for a sweep or table, else empty. `id` is the name of its folder, and `log` the id of its log; MLflow
    has both as tags.
    """

    number: int
    kind: str
    id: str
    name: str
    experiment: str
    job_hash: str
    fingerprint: str
    state: State
    log: str
    tracking_uri: str
    created: str


class RunFolder:
    """The folder of one run, sweep or table: `HOME/KIND/ID`."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @property
    def home(self) -> Path:
        """The home that contains the folder."""
        return self.path.parents[1]

    @property
    def record(self) -> RunRecord | None:
        """The record in the home's database; None before the first command has written it."""
        return _read_records(self.home).get((self.path.parent.name, self.path.name))

    @property
    def written_record(self) -> RunRecord:
        """The record in the home's database, which a command must have written before."""
        record = self.record
        assert record is not None
        return record

    def open(
        self, *, experiment: str, job_hash: str, fingerprint: str, log: str, uri: str, name: str = ""
    ) -> RunRecord:
        """Creates the folder, and writes its record as RUNNING; an old one keeps `number` and `created`."""
        self.path.mkdir(parents=True, exist_ok=True)
        old_record, database = self.record, Database(self.home)
        database.create()
        fields = {
            "name": name,
            "experiment": experiment,
            "job_hash": job_hash,
            "fingerprint": fingerprint,
            "state": State.RUNNING,
            "log": log,
            "tracking_uri": uri,
        }
        with database.transaction() as write:
            if old_record is None:
                created = f"{datetime.now(timezone.utc):%Y%m%d-%H%M%S-%f}"
                fixed = {"kind": self.path.parent.name, "id": self.path.name, "created": created}
                write.add_run({**fixed, **fields})
            else:
                write.change_run(old_record.number, **fields)
        return self.written_record

    def set_state(self, state: State) -> None:
        """Writes the state to the record, which must exist."""
        number = self.written_record.number
        with Database(self.home).transaction() as write:
            write.change_run(number, state=state)

    def try_lock(self, patience: float = 0.0) -> AbstractContextManager[bool]:
        """Locks the folder after a wait of up to `patience` s; yields whether this process has the lock."""
        return lock_file(self.path / LOCK, patience)

    @property
    def is_owned(self) -> bool:
        """Whether a process holds the folder's lock."""
        return is_locked(self.path / LOCK)


class RunFolders:
    """All folders of one kind under one home: `runs`, `sweeps` or `tables`."""

    def __init__(self, home: Path, kind: str = "runs") -> None:
        self.home, self.root = home, home / kind

    def new_folder(self, id: str | None = None) -> RunFolder:
        """Returns the folder `id`, or one with a new id if `id` is None or has a folder; creates nothing."""
        path = self.root / (id or new_id())
        return RunFolder(self.root / new_id() if path.exists() else path)

    def find(self, id: str | None) -> RunFolder | None:
        """Returns the folder with this id; None if it has no record."""
        folder = None if id is None else RunFolder(self.root / id)
        return folder if folder is not None and folder.record is not None else None

    def find_unfinished(self, job_hash: str, fingerprint: str) -> RunFolder | None:
        """Returns the latest unlocked run of a job on this data if its state is `RESUMABLE`; else None."""
        for folder, record in self.records():
            if (record.job_hash, record.fingerprint) != (job_hash, fingerprint):
                continue
            with folder.try_lock() as locked:
                if locked:
                    # Read again: the process of the record may have ended by itself a moment ago.
                    return folder if folder.written_record.state in RESUMABLE else None
        return None

    def find_named(self, name: str) -> RunFolder | None:
        """Returns the latest folder of this kind with this name; None if there is none."""
        return next((folder for folder, record in self.records() if record.name == name), None)

    def records(self) -> Iterator[tuple[RunFolder, RunRecord]]:
        """Yields the folders of this kind that exist and have a record, with the record, latest first."""
        return (pair for pair in home_records(self.home) if pair[1].kind == self.root.name)


def home_records(home: Path) -> Iterator[tuple[RunFolder, RunRecord]]:
    """Yields the runs, sweeps and tables of a home whose folders exist, with their records, latest first."""
    for record in sorted(_read_records(home).values(), key=lambda record: record.number, reverse=True):
        folder = RunFolder(home / record.kind / record.id)
        if folder.path.is_dir():
            yield folder, record


def _read_records(home: Path) -> dict[tuple[str, str], RunRecord]:
    records = {}
    for number, row in Database(home).runs().items():
        fields = {key: value for key, value in row.items() if key != "last_event"}
        record = RunRecord(number, **{**fields, "state": State(fields["state"])})
        records[record.kind, record.id] = record
    return records
