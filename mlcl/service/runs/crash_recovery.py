"""What a killed process left RUNNING is closed by the next command under the same home."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from mlcl.errors import UserError
from mlcl.service.runs.run_store import RunFolder, RunFolders, RunRecord
from mlcl.tracking import RunLog, State
from mlcl.tracking.undelivered import owned_by

KILLED = "its process was killed"

CloseSweep = Callable[[RunFolder, RunRecord], None]
"""Closes the trials of a killed sweep in what else knows about them. The folder is held meanwhile."""


def close_orphans(home: Path, close_sweep: CloseSweep | None = None) -> None:
    """Killed runs, sweeps and tables become STOPPED, in record and logs: the same command goes on with them.

    Needs no tracking server: the logs are delivered like all others. A living process holds its folder's
    lock, so nothing that runs is touched. Without `close_sweep` sweeps are left to who has it.
    """
    for kind in ("runs", "sweeps", "tables"):
        for folder, record in RunFolders(home, kind).records():
            if record.state is not State.RUNNING or (kind == "sweeps" and close_sweep is None):
                continue
            with folder.owned() as free:
                # Read again: its process may have ended by itself a moment ago.
                present = folder.record
                if free and present is not None and present.state is State.RUNNING:
                    if kind == "sweeps" and close_sweep is not None:
                        try:
                            close_sweep(folder, present)
                        except UserError:
                            continue  # a damaged one keeps nobody else from working: the doctor names it
                    folder.set_state(_close_logs(home, present))


def _close_logs(home: Path, record: RunRecord) -> State:
    """Ends the logs that its process answered for; the state that the record is to have."""
    logs = {id: RunLog.attach(home, id) for id in owned_by(home, record.id)}
    for log in logs.values():
        if log.state is State.RUNNING:
            log.finish(State.STOPPED, KILLED)
    # A kill between the log's end and the record's: the log knows.
    return logs[record.log].state if record.log in logs else State.STOPPED
