"""Run folders: one per run under `home/runs`, with a record that says what it is and what became of it."""

from __future__ import annotations

import heapq
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from mlcl.errors import UserError
from mlcl.files import locked, remove_partial, replace_text
from mlcl.service.runs.run_record import RunRecord, parse_record, record_text
from mlcl.tracking import State
from mlcl.tracking.jsonl import first_entry
from mlcl.tracking.log import LOG, log_folder
from mlcl.tracking.names import Tag
from mlcl.tracking.provenance import SUBMITTED
from mlcl.tracking.uri import stored_uri

RECORD, LEDGER = "run.json", "ledger.jsonl"
KINDS = ("runs", "sweeps", "tables")
MAX_RESTARTS = 3
"""Dead processes of one training that are replaced, each time from its last checkpoint."""
RESUMABLE = (State.RUNNING, State.STOPPED, State.BUDGET)
"""States of runs that are gone on with; RUNNING without a living owner was killed."""


def new_id() -> str:
    """`mlcl-<UTC time>-<random>`: sorts by time, unique without a registry."""
    return f"mlcl-{datetime.now(UTC):%Y%m%d-%H%M%S}-{secrets.token_hex(3)}"


def stamp(moment: datetime) -> str:
    """A UTC time as records have it: sorts by time."""
    return f"{moment:%Y%m%d-%H%M%S-%f}"


def submitted_id() -> str | None:
    """The id under which this command was submitted to a cluster: what it makes has the same one."""
    return os.environ.get(SUBMITTED) or None


class RunFolder:
    """The folder of one run."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @property
    def record(self) -> RunRecord | None:
        """The record; None where there is none (yet), and where it is damaged."""
        try:
            return parse_record((self.path / RECORD).read_text())
        except (OSError, ValueError, TypeError, KeyError):
            return None

    def open(
        self, *, experiment: str, job_hash: str, fingerprint: str, log: str, uri: str, name: str = ""
    ) -> RunRecord:
        """Writes a record that says RUNNING; one that goes on keeps the time at which it was made."""
        before, id = self.record, self.path.name
        if before is not None:
            its = (before.created, name, before.ledger, before.order, before.place)
        else:
            its = (stamp(datetime.now(UTC)), name, "", 0, self._next_place())
        kept = stored_uri(uri, self.path.parents[1])
        record = RunRecord(id, experiment, job_hash, fingerprint, State.RUNNING, log, kept, *its)
        self.write(record)
        return record

    def _next_place(self) -> int:
        """A place behind all others of the home. What is lost or damaged may have been the latest."""
        folders = (path for kind in KINDS for path in (self.path.parents[1] / kind).glob("*/"))
        records = [RunFolder(path).record for path in folders if path != self.path]
        return max((its.place for its in records if its), default=0) + 1 + records.count(None)

    def write(self, record: RunRecord) -> None:
        """Replaces the record at once and whole."""
        self.path.mkdir(parents=True, exist_ok=True)
        replace_text(self.path / RECORD, record_text(record))

    def set_state(self, state: State, ledger: str | None = None) -> None:
        """The same record in another state, and with the checksum that its ledger has now, if it has one."""
        record = self.record
        assert record is not None
        self.write(replace(record, state=state, ledger=record.ledger if ledger is None else ledger))

    @contextmanager
    def owned(self, patience: float = 0.0) -> Iterator[bool]:
        """Holds the folder for this process while inside; yields False where another process holds it.

        Waits up to `patience` seconds for it. The lock ends with its process, so a killed run never blocks
        the next one.
        """
        with locked(self.path / ".lock", patience) as mine:
            if mine:
                remove_partial(self.path, RECORD)
            yield mine


class RunFolders:
    """All folders of one kind under one home: `runs`, `sweeps` or `tables`."""

    def __init__(self, home: Path, kind: str = "runs") -> None:
        self.root = home / kind

    def new(self, id: str | None = None) -> RunFolder:
        """A folder under a new id; the folder is made when it is first written to.

        With `id`, under that one, unless it is taken.
        """
        path = self.root / (id or new_id())
        return RunFolder(self.root / new_id() if path.exists() else path)

    def remove_partial_records(self) -> None:
        """Removes first records that killed processes were writing: no command goes on with these folders."""
        for left in self.root.glob(f"*/.{RECORD}.*.partial"):
            with RunFolder(left.parent).owned():
                pass  # taking the lock removes it

    def begun(self, id: str | None) -> RunFolder | None:
        """The folder of this id, if it has a record."""
        folder = None if id is None else RunFolder(self.root / id)
        return folder if folder is not None and folder.record is not None else None

    def unfinished(self, job_hash: str, fingerprint: str) -> RunFolder | None:
        """The latest run of the same job on the same data, if it was interrupted and no process holds it.

        A later run that ended by itself settles it: an older interrupted one is not dug up again. Raises
        UserError where the record of a run of this job is damaged.
        """
        self.check_records(job_hash)
        for folder, record in self.records():
            if (record.job_hash, record.fingerprint) != (job_hash, fingerprint):
                continue
            with folder.owned() as free:
                if free:
                    return folder if record.state in RESUMABLE else None
        return None

    def named(self, name: str) -> RunFolder | None:
        """The latest one whose record has this name. Raises UserError where one of them is damaged."""
        self.check_records(name)
        return next((folder for folder, record in self.records() if record.name == name), None)

    def check_records(self, its: str) -> None:
        """Raises UserError for a lost or damaged one, of a job with this hash or of what has this name."""
        for path in self.damaged():
            head = first_entry(path / LEDGER)
            tags = first_entry(log_folder(self.root.parent, path.name) / LOG).get("tags", {})
            if its in (head.get("name"), tags.get(Tag.NAME), tags.get(Tag.JOB_HASH)):
                raise UserError(
                    "the record is missing or damaged, so that it is unknown what was done",
                    file=path / RECORD,
                    found=its,
                    allowed="`mlcl doctor --fix`, or the folder moved away to begin anew",
                )

    def damaged(self) -> Iterator[Path]:
        """The folders whose record is damaged, or gone while their ledger or log is there."""
        for path in self.root.glob("*/"):
            left = (path / RECORD, path / LEDGER, log_folder(self.root.parent, path.name) / LOG)
            if any(file.exists() for file in left) and RunFolder(path).record is None:
                yield path

    def records(self) -> Iterator[tuple[RunFolder, RunRecord]]:
        """All runs with a whole record, the latest first."""
        folders = [RunFolder(file.parent) for file in self.root.glob(f"*/{RECORD}")]
        known = [(folder, record) for folder in folders if (record := folder.record) is not None]
        yield from sorted(known, key=_place, reverse=True)


def home_records(home: Path) -> Iterator[tuple[RunFolder, RunRecord]]:
    """The runs, sweeps and tables of a home with a whole record, the latest first."""
    kinds = (RunFolders(home, kind).records() for kind in KINDS)
    # Those of earlier releases keep the order that each kind has, and only the time says how kinds mix.
    return heapq.merge(*kinds, key=lambda its: (its[1].place, its[1].created), reverse=True)


def _place(found: tuple[RunFolder, RunRecord]) -> tuple[int, int, str, str]:
    """Earlier releases counted each kind alone, or kept no order: theirs come first."""
    return found[1].place, found[1].order, found[1].created, found[1].id
