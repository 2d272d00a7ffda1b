"""Stores trainings as runs in `runs/`: those of `mlcl run`, and those of the cells of tables."""

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
"""Seconds to wait for the lock of a folder, which a process that is being killed may still hold."""


class SharedRuns(TrainingStore):
    """The store of trainings that have a run folder of their own, `runs/KEY`, with a record and a lock.

    `ledger` is that of a table, None for `mlcl run`. `parent` is the id of the table's log, in which the logs
    of its trainings are nested.
    """

    def __init__(self, logs: JobLogs, ledger: Ledger | None = None, parent: str | None = None) -> None:
        self._logs, self._ledger, self._parent = logs, ledger, parent
        self._run_folders = RunFolders(logs.home)
        self._data: dict[str, DatasetInfo] = {}
        self._held_locks: dict[str, ExitStack] = {}
        self._lost_keys: set[str] = set()

    def claim(self, job: JobConfig, data: DatasetInfo, *, fresh: bool = False, id: str | None = None) -> str:
        """Locks the folder of a job's interrupted run, or else of a new run, and returns the run's id.

        The lock is held until the training starts or ends, since a record that is RUNNING in a folder without
        a lock is taken for that of a killed process. `id` is the id of a new run. With `fresh`, only an
        interrupted run with this id is continued.
        """
        old_run = self._run_folders.find_unfinished(job_hash(job), data.fingerprint)
        if fresh and (old_run is None or old_run.path.name != id):
            old_run = None
        folder, lock = old_run or self._run_folders.new_folder(id), ExitStack()
        if not lock.enter_context(folder.try_lock()):
            # Another command has locked the folder a moment ago.
            lock.close()
            folder = self._run_folders.new_folder()
            lock.enter_context(folder.try_lock())
        key = folder.path.name
        self._held_locks[key], self._data[key] = lock, data
        folder.open(
            experiment=job.experiment,
            job_hash=job_hash(job),
            fingerprint=data.fingerprint,
            log=self._logs.usable_id(key),
            uri=self._logs.stored_uri,
        )
        return key

    def _run_folder(self, entry: Entry) -> RunFolder:
        return RunFolder(self._run_folders.root / entry.key)

    def folder(self, entry: Entry) -> Path:
        """Returns the training's folder, `runs/ID`."""
        return self._run_folder(entry).path

    def log(self, entry: Entry) -> str:
        """Returns the id of the log in the run's record, or the training's key if there is no record."""
        record = self._run_folder(entry).record
        return record.log if record else entry.key

    def open(self, entry: Entry) -> None:
        """Starts the training's log, or attaches to it, and has it delivered to MLflow."""
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
        """Releases the lock of the folder, which the process of the training takes."""
        self._release(entry.key)

    def release(self) -> None:
        """Releases the locks of all folders."""
        for key in list(self._held_locks):
            self._release(key)

    def _release(self, key: str) -> None:
        if key in self._held_locks:
            self._held_locks.pop(key).close()

    def close(self, entry: Entry, end: End) -> None:
        """Writes the end to ledger, log and record; to the ledger alone if another command has the run."""
        folder = self._run_folder(entry)
        record = folder.record
        if entry.key in self._lost_keys or record is None:
            assert self._ledger is not None
            self._ledger.close(entry.key, end)
        else:
            log = RunLog.attach(self._logs.home, record.log)
            write_end(end, log, folder.path, ledger=self._ledger, key=entry.key, run=folder)
        self._release(entry.key)

    def owner_changed(self, entry: Entry) -> str:
        """Releases the lock; returns a text with the folder if another command trains in it, else ''."""
        self._release(entry.key)
        folder = self._run_folder(entry)
        with folder.try_lock(PATIENCE) as locked:
            if locked:
                return ""
        self._lost_keys.add(entry.key)
        return f"another command trains in {folder.path}"
