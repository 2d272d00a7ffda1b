"""Checks for logs that MLflow does not have yet."""

from __future__ import annotations

from collections.abc import Iterator

from mlcl.service.doctor.finding import Finding, Scope
from mlcl.service.doctor.locks import is_locked, log_locks
from mlcl.tracking.cursor import Cursor
from mlcl.tracking.delivery import deliver_all
from mlcl.tracking.jsonl import first_entry
from mlcl.tracking.log import LOG
from mlcl.tracking.undelivered import pending_entries
from mlcl.tracking.uri import is_stored_uri


def find_undelivered(scope: Scope) -> Iterator[Finding]:
    """Logs with undelivered entries; those that another process delivers are notes."""

    def mend() -> None:
        deliver_all(scope.home, scope.uri, scope.announce)

    for path in sorted((scope.home / "logs").glob(f"*/{LOG}")):
        cursor = Cursor.read(path.parent)
        entries = pending_entries(path.parent, cursor)
        if entries == 0:
            continue
        log, count = str(path.parent), f"{entries} entries are not delivered"
        store = first_entry(path).get("uri")
        if is_locked(*log_locks(scope.home, path.parent.name)):
            yield Finding(log, f"{count}: its command is at it", "none is needed", note=True)
        elif not is_stored_uri(store, scope.uri, scope.home):
            yield Finding(
                log, f"{count}: they are for {store}", "set MLFLOW_TRACKING_URI to that store, then --fix"
            )
        elif cursor.undeliverable:
            why = f"{count}: MLflow refused them ({cursor.undeliverable})"
            yield Finding(log, why, "tried again; where MLflow refuses again, the log stays", mend)
        else:
            yield Finding(log, count, "delivered", mend)
