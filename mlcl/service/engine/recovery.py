"""Closes what killed commands left RUNNING. Every command that trains calls it first, and `mlcl doctor`."""

from __future__ import annotations

from pathlib import Path

from mlcl.errors import UserError
from mlcl.service.engine.entries import End, Entry
from mlcl.service.engine.ledger import Ledger
from mlcl.service.engine.nested_trials import log_id, sync_log
from mlcl.service.engine.shared_runs import sync_run
from mlcl.service.runs.home_version import mark_home
from mlcl.service.runs.run_record import RunRecord
from mlcl.service.runs.run_store import RESUMABLE, RunFolder, RunFolders
from mlcl.tracking import RunLog, State
from mlcl.tracking.undelivered import owned_by

KILLED = "its process was killed"


def recover(home: Path) -> None:
    """Killed sweeps, tables and runs become STOPPED everywhere; the same commands go on with them.

    Needs no tracking server: the logs are delivered like all others. A living process holds its folder's
    lock, so nothing that runs is touched. Raises UserError for a home that a later release has written to.
    """
    mark_home(home)
    for kind in ("sweeps", "tables", "runs"):
        folders = RunFolders(home, kind)
        folders.remove_partial_records()
        for folder, record in folders.records():
            if record.state is not State.RUNNING:
                continue
            with folder.owned() as free:
                # Read again: its process may have ended by itself a moment ago.
                present = folder.record
                if not free or present is None or present.state is not State.RUNNING:
                    continue
                try:
                    last = close_ledger(home, folder)
                except UserError:
                    continue  # a damaged one must not keep others from working: the doctor names it
                folder.set_state(_close_logs(home, present), last)


def close_ledger(home: Path, folder: RunFolder) -> str:
    """Closes the trainings of a killed sweep or table and returns its ledger's checksum. The caller holds it.

    Does nothing where there is no ledger. Raises UserError where the ledger cannot be read.
    """
    ledger = Ledger(folder.path)
    if not ledger.head:
        return ""
    ledger.append("killed")
    started = set(owned_by(home, folder.path.name))
    for entry in ledger.entries.values():
        if entry.state is State.RUNNING:
            ledger.close(entry.key, End(State.STOPPED, KILLED))
        id = log_id(folder.path.name, entry.key)
        if id in started:
            sync_log(RunLog.attach(home, id), entry)
        elif entry.ended:
            _finish_run(home, entry)
    for key in ledger.groups.keys() - ledger.group_states.keys():
        ledger.append("close_group", key=key, state=State.STOPPED, reason=KILLED)
    ledger.append("end", state=State.STOPPED, reason=KILLED)
    return ledger.last


def _finish_run(home: Path, entry: Entry) -> None:
    """The ledger knows how a training ended; a kill may have kept its run's record from saying so."""
    run = RunFolders(home).begun(entry.key)
    if run is not None:
        with run.owned() as free:
            if free and run.record is not None and run.record.state in RESUMABLE:
                sync_run(home, run, entry)


def _close_logs(home: Path, record: RunRecord) -> State:
    """Ends the logs that the killed process was to end; returns the state that the record is to have."""
    logs = {id: RunLog.attach(home, id) for id in owned_by(home, record.id)}
    for log in logs.values():
        if log.state is State.RUNNING:
            log.finish(State.STOPPED, KILLED)
    # A kill between the log's end and the record's: the log knows.
    return logs[record.log].state if record.log in logs else State.STOPPED
