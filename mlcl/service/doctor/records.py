"""Checks the records of runs, sweeps and tables: some cannot be read, and some are of killed processes."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from mlcl.errors import UserError
from mlcl.service.doctor.finding import Finding, Scope
from mlcl.service.doctor.known_trainings import known_trainings
from mlcl.service.doctor.ledger_repair import Event, Repair, parsed, rewrite
from mlcl.service.doctor.locks import FOLDER_LOCK, free_folders, hold_locks
from mlcl.service.doctor.record_repair import written_anew
from mlcl.service.doctor.studies import study_trials
from mlcl.service.engine.ledger import ANEW, FORMAT_KEY, LEDGER, Ledger
from mlcl.service.engine.recovery import recover
from mlcl.service.runs.run_store import RECORD, RunFolder, RunRecord
from mlcl.tracking import State


def find_unreadable_records(scope: Scope) -> Iterator[Finding]:
    """Unreadable records, and damaged ledgers."""
    for folder in free_folders(scope.home):
        record = folder.record or written_anew(scope.home, folder)
        if folder.record is None and record is not None:
            cure = "written anew from its ledger and its log"
            mend = partial(_write, folder, record)
            yield Finding(str(folder.path / RECORD), "the record cannot be read", cure, mend)
        elif record is None and (folder.path / RECORD).exists():
            cure = "restore it, or move the folder away; its command then starts anew"
            yield Finding(str(folder.path / RECORD), "the record cannot be read", cure)
        if (folder.path / LEDGER).exists():
            yield from _damaged_ledger(scope, folder)


def _damaged_ledger(scope: Scope, folder: RunFolder) -> Iterator[Finding]:
    path = folder.path / LEDGER
    try:
        Ledger(folder.path)
    except UserError as error:
        if error.key == FORMAT_KEY:
            yield Finding(str(path), error.problem, f"format {error.allowed}")
            return
        why = f"{error.key} is damaged: {error.found}"
        try:
            repair = Repair(path)
            known = known_trainings(scope.home, folder.path, study_trials(scope, folder.path, repair.events))
            said = [
                known[key].sentence for _, line in repair.bad if (key := parsed(line).get("key")) in known
            ]
            events = repair.complete(known)
        except (UserError, OSError, ValueError, KeyError) as lost:
            kind = "table" if folder.path.parent.name == "tables" else "sweep"
            why += f"; it cannot be repaired: {lost.line() if isinstance(lost, UserError) else lost}"
            yield Finding(str(path), why, f"restore it, or begin {ANEW[kind]}")
            return
        cure = "repaired by its checksums, the logs, the study and the results; the old file is kept"
        yield Finding(str(path), "; ".join([why, *said]), cure, partial(_mend, folder, repair, events))


def _write(folder: RunFolder, record: RunRecord) -> None:
    with hold_locks(folder.path / FOLDER_LOCK) as mine:
        if mine:
            folder.write(record)


def _mend(folder: RunFolder, repair: Repair, events: list[Event]) -> None:
    with hold_locks(folder.path / FOLDER_LOCK) as mine:
        if mine:
            rewrite(repair, events)


def find_dead_runs(scope: Scope) -> Iterator[Finding]:
    """Folders whose record says RUNNING and that no process has locked; one repair closes all."""

    def mend() -> None:
        recover(scope.home)

    for folder in free_folders(scope.home):
        record = folder.record
        if record is not None and record.state is State.RUNNING:
            kind = f"{folder.path.parent.name.removesuffix('s')} {record.name}".strip()
            yield Finding(
                str(folder.path),
                f"the {kind} is RUNNING, but no process has it: it was killed",
                "set to STOPPED; the same command goes on with it",
                mend,
            )
