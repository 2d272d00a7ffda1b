"""Trainings that are runs of their own: `mlcl run` and the cells of tables share the folder `runs/`."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

from mlcl.config import JobConfig, job_hash, load_job
from mlcl.data import DatasetInfo
from mlcl.service.engine.closing import write_end
from mlcl.service.engine.entries import End, Entry
from mlcl.service.engine.ledger import Ledger
from mlcl.service.engine.source import TrainingStore
from mlcl.store import RunFolder, RunFolders
from mlcl.tracking import RunLog
from mlcl.tracking.job_logs import JobLogs
from mlcl.tracking.names import Tag

PATIENCE = 5.0
"""Seconds that a dead process may hold its folder."""


class SharedRuns(TrainingStore):
    """A training with the key ID is in `runs/ID`, with its record, its lock and its log.

    Args:
        logs: Where the logs are written.
        ledger: The ledger of the table; None for `mlcl run`, whose training is in no ledger.
        parent: The id of the table's log, in which the logs are nested.
    """

    def __init__(self, logs: JobLogs, ledger: Ledger | None = None, parent: str | None = None) -> None:
        self._logs, self._ledger, self._parent = logs, ledger, parent
        self._runs = RunFolders(logs.home)
        self._data: dict[str, DatasetInfo] = {}
        self._held: dict[str, ExitStack] = {}
        self._elsewhere: set[str] = set()

    def claim(self, job: JobConfig, data: DatasetInfo, *, fresh: bool = False, id: str | None = None) -> str:
        """Returns the id of a job's interrupted run, else of a new one, and holds its folder.

        The folder is held until the training starts or ends: RUNNING without a holder is what a kill leaves.

        Args:
            job: The job.
            data: Its data set.
            fresh: Begins a new run, unless the interrupted one is `id`.
            id: The id of a new run; by default one is made.
        """
        found = self._runs.unfinished(job_hash(job), data.fingerprint)
        if fresh and (found is None or found.path.name != id):
            found = None
        folder, lock = found or self._runs.new(id), ExitStack()
        if not lock.enter_context(folder.owned()):
            # Another command took it up a moment ago.
            lock.close()
            folder = self._runs.new()
            lock.enter_context(folder.owned())
        key = folder.path.name
        self._held[key], self._data[key] = lock, data
        folder.open(
            experiment=job.experiment,
            job_hash=job_hash(job),
            fingerprint=data.fingerprint,
            log=self._logs.usable(key),
            uri=self._logs.stored_uri,
        )
        return key

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
        tags: dict[str, str] = {Tag.ID: entry.key}
        if self._parent is not None:
            tags |= {Tag.KIND: "cell", Tag.CELL: entry.label}
        log = self._logs.start(
            load_job(entry.job),
            self._data[entry.key],
            id=self.log(entry),
            name=entry.label,
            owner=entry.key,
            parent=self._parent,
            tags=tags,
        )
        self._logs.deliver(log.id)

    def on_start(self, entry: Entry) -> None:
        """Lets go of the folder, which the process of the training holds from now on."""
        self._release(entry.key)

    def release(self) -> None:
        """Lets go of all folders."""
        for key in list(self._held):
            self._release(key)

    def _release(self, key: str) -> None:
        if key in self._held:
            self._held.pop(key).close()

    def close(self, entry: Entry, end: End) -> None:
        """Writes the end to ledger, log and record; to the ledger alone where another command has the run."""
        folder = self._folder(entry)
        record = folder.record
        if entry.key in self._elsewhere or record is None:
            assert self._ledger is not None
            self._ledger.close(entry.key, end)
        else:
            log = RunLog.attach(self._logs.home, record.log)
            write_end(end, log, folder.path, ledger=self._ledger, key=entry.key, run=folder)
        self._release(entry.key)

    def owner_changed(self, entry: Entry) -> str:
        """Names the folder where another command trains in it."""
        self._release(entry.key)
        folder = self._folder(entry)
        with folder.owned(PATIENCE) as free:
            if free:
                return ""
        self._elsewhere.add(entry.key)
        return f"another command trains in {folder.path}"
