"""Closes what killed commands left RUNNING. Every command that trains calls it first, and `mlcl doctor`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from mlcl.errors import MachineError, UserError
from mlcl.results.documents import stop_sweep
from mlcl.service.engine.entries import End, Entry
from mlcl.service.engine.ledger import Ledger
from mlcl.service.engine.nested_trials import log_id, sync_log
from mlcl.service.engine.shared_runs import sync_run
from mlcl.store import RESUMABLE, Database, RunFolder, RunFolders, RunRecord
from mlcl.tracking import RunLog, State
from mlcl.tracking.undelivered import owned_by

KILLED = "its process was killed"


def recover(home: Path) -> None:
    """Killed sweeps, tables and runs become STOPPED everywhere; the same commands go on with them.

    Needs no tracking server: the logs are delivered like all others. A living process holds its folder's
    lock, so nothing that runs is touched. Raises UserError where the home's database is damaged, missing, or
    of a later mlcl.
    """
    Database(home).check()
    Database(home).create()
    for kind in ("sweeps", "tables", "runs"):
        for folder, record in RunFolders(home, kind).records():
            if record.state is not State.RUNNING:
                continue
            with folder.owned() as free:
                # Read again: its process may have ended by itself a moment ago.
                present = folder.record
                if not free or present is None or present.state is not State.RUNNING:
                    continue
                close_ledger(home, folder)
                stop_sweep(folder.path, KILLED)
                folder.set_state(_close_logs(home, present))


@contextmanager
def backed_up(home: Path, announce: Callable[[str], None]) -> Iterator[None]:
    """Copies the home's database when a command has ended, however it ended; says where that fails."""
    try:
        yield
    finally:
        try:
            Database(home).back_up()
        except (OSError, UserError, MachineError) as error:
            announce(f"the database of the home has no new backup: {error}")


def close_ledger(home: Path, folder: RunFolder) -> None:
    """Closes the trainings of a killed sweep or table, if it has begun any. The caller holds its folder."""
    ledger = Ledger(folder.path)
    if not ledger.head:
        return
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


def _finish_run(home: Path, entry: Entry) -> None:
    """The ledger knows how a training ended; a kill may have kept its run's record from saying so."""
    run = RunFolders(home).find(entry.key)
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
