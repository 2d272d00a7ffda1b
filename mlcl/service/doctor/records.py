"""Checks of the records of runs, sweeps and tables: damaged ones, and those of killed processes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

from mlcl.errors import UserError
from mlcl.markup import counted
from mlcl.service.doctor.finding import Finding, Scope
from mlcl.service.doctor.known_trainings import Known, known_trainings
from mlcl.service.doctor.ledger_repair import Event, Repair, rewrite
from mlcl.service.doctor.locks import FOLDER_LOCK, free_folders, hold_locks
from mlcl.service.engine.ledger import ANEW, FORMAT_KEY, LEDGER, Ledger
from mlcl.service.engine.recovery import recover
from mlcl.service.runs.run_record import RunRecord
from mlcl.service.runs.run_store import RECORD, RunFolder, RunFolders, stamp
from mlcl.tracking import RunLog, State
from mlcl.tracking.jsonl import first_entry
from mlcl.tracking.log import LOG, log_folder
from mlcl.tracking.names import Tag
from mlcl.tracking.undelivered import owned_by

DAMAGED_RECORD = "the record is missing or damaged"
MOST_TOLD = 5
"""Most trainings that are named beside a damaged ledger."""


def written_anew(home: Path, folder: RunFolder) -> RunRecord | None:
    """The record; None where no log of it was started, or its ledger is damaged."""
    id = folder.path.name
    starts = {log: first_entry(log_folder(home, log) / LOG) for log in owned_by(home, id)}
    own = [log for log, start in starts.items() if Tag.KEY not in start["tags"]]
    try:
        ledger = Ledger(folder.path)
    except UserError:
        return None
    if not own:
        return None
    log = max(own, key=len)  # numbered where an earlier one was for another store
    start, head = starts[log], ledger.head
    made = datetime.fromtimestamp(head["at"] if head else start["time"] / 1000, UTC)
    return RunRecord(
        id=id,
        experiment=start["experiment"],
        job_hash=head.get("job_hash") or start["tags"].get(Tag.JOB_HASH, ""),
        fingerprint=start["tags"].get(Tag.FINGERPRINT, ""),
        state=ledger.state if head else RunLog.attach(home, log).state,
        log=log,
        tracking_uri=start["uri"],
        created=stamp(made),
        name=start["tags"].get(Tag.NAME, ""),
        ledger=ledger.last,
        **_places(home, folder, start, stamp(made)),
    )


def _places(home: Path, folder: RunFolder, start: Mapping[str, Any], created: str) -> dict[str, int]:
    """The `place` that its log has, else `place` and `order` of the one of its kind before it."""
    if "place" in start:
        return {"place": start["place"]}
    # Nothing that earlier releases wrote but the record has its order: only the time says what it was before.
    others = (record for _, record in RunFolders(home, folder.path.parent.name).records())
    before = next((record for record in others if record.created < created), None)
    return {"place": before.place, "order": before.order} if before else {}


def find_damaged_records(scope: Scope) -> Iterator[Finding]:
    """Lost and damaged records, and damaged ledgers."""
    for folder in free_folders(scope.home):
        record = folder.record or written_anew(scope.home, folder)
        if folder.record is None and record is not None:
            cure = "written anew from its ledger and its log"
            mend = partial(_write, folder, record)
            yield Finding(str(folder.path / RECORD), DAMAGED_RECORD, cure, mend)
        elif record is None and (folder.path / RECORD).exists():
            cure = "restore it, or move the folder away; its command then starts anew"
            yield Finding(str(folder.path / RECORD), DAMAGED_RECORD, cure)
        yield from _damaged_ledger(scope, folder)


def _damaged_ledger(scope: Scope, folder: RunFolder) -> Iterator[Finding]:
    path = folder.path / LEDGER
    by_hand = f"restore it, or begin {ANEW['table' if folder.path.parent.name == 'tables' else 'sweep']}"
    try:
        Ledger(folder.path)
    except UserError as error:
        if error.key == FORMAT_KEY:
            yield Finding(str(path), error.problem, f"format {error.allowed}")
            return
        if not path.exists():
            why = "it is gone, and no other store has its first line; the results in MLflow stay"
            yield Finding(str(path), why, by_hand)
            return
        why = f"{error.key} is damaged: {error.found}"
        try:
            repair = Repair(path)
            known = known_trainings(scope.home, folder.path)
            lost = repair.lost(known)
        except (UserError, OSError, ValueError, KeyError) as failed:
            reason = failed.line() if isinstance(failed, UserError) else failed
            why += f"; it cannot be repaired: {reason}; the results in MLflow stay"
            yield Finding(str(path), why, by_hand)
            return
        cure = "repaired by its checksums, the logs and the results; the old file is kept"
        yield Finding(
            str(path),
            "; ".join([why, *_told(repair.missing(lost, known), known)]),
            cure,
            partial(_mend, folder, repair, repair.complete(lost)),
        )


def _told(keys: Sequence[str], known: Mapping[str, Known]) -> list[str]:
    """What the other stores say of these trainings."""
    said = [known[key].sentence for key in keys[:MOST_TOLD]]
    left = len(keys) - len(said)
    return [*said, *([f"they know more of {counted(left, 'other training')} too"] if left else [])]


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
