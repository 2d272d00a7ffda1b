"""The record of a run, sweep or table as its ledger and its log have it."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

from mlcl.errors import UserError
from mlcl.service.engine.ledger import Ledger
from mlcl.service.runs.run_store import RunFolder, RunFolders, RunRecord, stamp
from mlcl.tracking import RunLog
from mlcl.tracking.jsonl import first_entry
from mlcl.tracking.log import LOG, log_folder
from mlcl.tracking.names import Tag
from mlcl.tracking.undelivered import owned_by


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
        order=_order(home, folder, stamp(made)),
    )


def _order(home: Path, folder: RunFolder, created: str) -> int:
    """That of the latest one that was made before: the same order is settled by the time."""
    others = RunFolders(home, folder.path.parent.name).records()
    return max((record.order for _, record in others if record.created < created), default=0)
