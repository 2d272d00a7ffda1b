"""Trainings that are runs of their own: with `mlcl run` and other tables they share `runs/`."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

from mlcl.config import JobConfig, job_hash, load_job
from mlcl.data import DatasetInfo
from mlcl.service.engine.checkpoints import drop_checkpoint
from mlcl.service.engine.entries import Entry
from mlcl.service.engine.source import TrainingStore
from mlcl.store import RunFolder, RunFolders
from mlcl.tracking import RunLog
from mlcl.tracking.job_logs import JobLogs
from mlcl.tracking.names import Tag

PATIENCE = 5.0
"""Seconds that a dead process may hold its folder."""


def sync_run(home: Path, folder: RunFolder, entry: Entry) -> None:
    """Brings the log and the record of a training's run to what the ledger says."""
    record = folder.record
    if record is None:
        return
    RunLog.attach(home, record.log).set_state(entry.state, entry.reason)
    folder.set_state(entry.state)
    drop_checkpoint(folder.path, entry.state)


class SharedRuns(TrainingStore):
    """A training ID lies in `runs/ID`, with its record, its lock, and a log that is nested in `parent`."""

    def __init__(self, logs: JobLogs, parent: str) -> None:
        self._logs, self._parent = logs, parent
        self._runs = RunFolders(logs.home)
        self._data: dict[str, DatasetInfo] = {}
        self._held: dict[str, ExitStack] = {}
        self._taken: set[str] = set()

    def claim(self, job: JobConfig, data: DatasetInfo) -> str:
        """The id of a job's interrupted run, else of a new one.

        The folder is held until a process begins in it: RUNNING without a holder is what a kill leaves.
        """
        folder = self._runs.unfinished(job_hash(job), data.fingerprint) or self._runs.new()
        lock = ExitStack()
        if not lock.enter_context(folder.owned()):
            # Another command took it up a moment ago.
            lock.close()
            folder = self._runs.new()
            lock.enter_context(folder.owned())
        id = folder.path.name
        self._held[id], self._data[id] = lock, data
        folder.open(
            experiment=job.experiment,
            job_hash=job_hash(job),
            fingerprint=data.fingerprint,
            log=self._logs.usable(id),
            uri=self._logs.stored_uri,
        )
        return id

    def _folder(self, entry: Entry) -> RunFolder:
        return RunFolder(self._runs.root / entry.key)

    def folder(self, entry: Entry) -> Path:
        """`runs/ID`."""
        return self._folder(entry).path

    def log(self, entry: Entry) -> str:
        """The log that the run's record names."""
        record = self._folder(entry).record
        return record.log if record else entry.key

    def open(self, entry: Entry) -> None:
        """Starts the log, or goes on with it."""
        log = self._logs.start(
            load_job(entry.job),
            self._data[entry.key],
            id=self.log(entry),
            name=entry.label,
            owner=entry.key,
            parent=self._parent,
            tags={Tag.KIND: "cell", Tag.ID: entry.key, Tag.CELL: entry.label},
        )
        self._logs.deliver(log.id)

    def begun(self, entry: Entry) -> None:
        """The process holds the folder from now on."""
        if entry.key in self._held:
            self._held.pop(entry.key).close()

    def closed(self, entry: Entry) -> None:
        """Log and record say what the ledger says, unless another command has the run."""
        self.begun(entry)
        if entry.key not in self._taken:
            sync_run(self._logs.home, self._folder(entry), entry)

    def taken(self, entry: Entry) -> str:
        """Names the folder where another command trains in it."""
        self.begun(entry)
        folder = self._folder(entry)
        with folder.owned(PATIENCE) as free:
            if free:
                return ""
        self._taken.add(entry.key)
        return f"another command trains in {folder.path}"
