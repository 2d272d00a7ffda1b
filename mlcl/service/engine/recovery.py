"""Closes trainings, runs, sweeps and tables that killed commands left RUNNING.

Every command that trains does this first, and `mlcl doctor` does it, too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from mlcl.errors import MachineError, UserError
from mlcl.results.documents import stop_sweep
from mlcl.results.training_result import training_folder
from mlcl.service.engine.closing import write_end
from mlcl.service.engine.entries import End, Entry
from mlcl.service.engine.ledger import Ledger
from mlcl.service.engine.nested_trials import end_confirmation_log, log_id
from mlcl.store import RESUMABLE, Database, RunFolder, RunFolders
from mlcl.tracking import RunLog, State

KILLED = "its process was killed"


def recover(home: Path) -> None:
    """Sets killed sweeps, tables and runs to STOPPED in record, ledger and log, so that they can be resumed.

    Needs no tracking server: the logs are delivered to it later. A folder that a living process has locked is
    left alone. Raises UserError if the home's database is damaged, missing, or was written by a later mlcl.
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
                log = RunLog.find(home, present.log)
                write_end(End(State.STOPPED, KILLED), log, folder.path, run=folder)


@contextmanager
def backed_up(home: Path, announce: Callable[[str], None]) -> Iterator[None]:
    """Backs up the home's database when the context ends, also after an error; announces a failed backup."""
    try:
        yield
    finally:
        try:
            Database(home).back_up()
        except (OSError, UserError, MachineError) as error:
            announce(f"the database of the home has no new backup: {error}")


def close_ledger(home: Path, folder: RunFolder) -> None:
    """Writes the end of a killed sweep or table, whose lock the caller holds, and of its trainings."""
    ledger = Ledger(folder.path)
    if not ledger.head:
        return
    ledger.append("killed")
    close_trainings(home, ledger, KILLED)
    ledger.append("end", state=State.STOPPED, reason=KILLED)


def close_trainings(home: Path, ledger: Ledger, reason: str) -> None:
    """Sets RUNNING trainings and confirmations to STOPPED, and repeats all ends in the logs, after a kill."""
    id = ledger.folder.name
    for key, entry in ledger.entries.items():
        end = End(State.STOPPED, reason) if entry.state is State.RUNNING else entry.last_end
        log = RunLog.find(home, log_id(id, key))
        write_end(end, log, training_folder(ledger.folder, key), ledger=ledger, key=key)
        if log is None and entry.ended:
            _finish_run(home, entry)
    for key in ledger.confirmations:
        if key not in ledger.confirmation_states:
            ledger.append("close_confirmation", key=key, state=State.STOPPED, reason=reason)
        if (log := RunLog.find(home, log_id(id, key))) is not None:
            end_confirmation_log(log, ledger, key)


def _finish_run(home: Path, entry: Entry) -> None:
    """Copies the end of a training from the ledger to the record of its run, if a kill prevented that."""
    run = RunFolders(home).find(entry.key)
    if run is not None:
        with run.owned() as free:
            record = run.record
            if free and record is not None and record.state in RESUMABLE:
                write_end(entry.last_end, RunLog.find(home, record.log), run.path, run=run)
