"""Checks of MLflow's store: undelivered logs, and runs whose state differs from that in the home."""

from __future__ import annotations

from collections.abc import Iterator, Set
from functools import partial
from pathlib import Path

from mlflow import MlflowClient

from mlcl.markup import format_count
from mlcl.results.stores import ClientRuns
from mlcl.service.doctor.checks import Finding, Scope
from mlcl.service.doctor.home_checks import all_folders, any_locked, hold_locks, log_locks
from mlcl.service.engine.closing import KILLED
from mlcl.store import LOCK, RunFolder
from mlcl.tracking import MLFLOW_STATUS, RunLog, State
from mlcl.tracking.cursor import CURSOR, Cursor, delivered_logs, pending_entries, undelivered_logs
from mlcl.tracking.delivery import deliver_all, lost_logs
from mlcl.tracking.log import log_folder
from mlcl.tracking.names import Tag
from mlcl.tracking.network import unreachable_reason
from mlcl.tracking.tracker import Trashed, existing_run, find_trashed
from mlcl.tracking.uri import hide_password, sqlite_file, stored_uri

SHOWN_IDS = 3


def find_undelivered(scope: Scope) -> Iterator[Finding]:
    """Yields a finding for each log with undelivered entries, and one for logs whose store was deleted."""

    def mend() -> None:
        deliver_all(scope.home, scope.uri, scope.announce)

    if (delivered_ids := delivered_logs(scope.home, scope.uri)) and not unreachable_reason(scope.uri):
        lost_ids = (
            lost_logs(scope.home, scope.uri, MlflowClient(scope.uri)) if _has_tables(scope) else delivered_ids
        )
        if lost_ids:
            problem = (
                f"{format_count(len(lost_ids), 'log')} went to a store that was deleted or replaced since"
            )
            yield Finding(hide_password(scope.uri), problem, "delivered again", mend)
    for log in undelivered_logs(scope.home):
        path, count = str(log_folder(scope.home, log.id)), f"{log.entries} entries are not delivered"
        if any_locked(*log_locks(scope.home, log.id)):
            yield Finding(path, f"{count}: its command is still running", "none is needed", note=True)
        elif log.uri != stored_uri(scope.uri, scope.home):
            cure = "set MLFLOW_TRACKING_URI to that store, then --fix"
            yield Finding(path, f"{count}: they are for {log.uri}", cure)
        elif log.refusal and (trash := _find_trashed(scope, log.id)) is not None:
            problem = f"{count}: its {trash.what} was deleted in MLflow"
            yield Finding(path, problem, f"`{trash.command}`, then --fix")
        elif log.refusal:
            problem = f"{count}: MLflow refused them ({log.refusal})"
            yield Finding(path, problem, "tried again; where MLflow refuses again, the log stays", mend)
        else:
            yield Finding(path, count, "delivered", mend)


def _find_trashed(scope: Scope, log: str) -> Trashed | None:
    """Returns how to restore a log's deleted run; None if it is not deleted or MLflow does not answer."""
    run_id = Cursor.of(scope.home, log).run_id
    if run_id is None or unreachable_reason(scope.uri) or not _has_tables(scope):
        return None
    return find_trashed(MlflowClient(tracking_uri=scope.uri), scope.uri, run_id)


def find_wrong_states(scope: Scope) -> Iterator[Finding]:
    """Yields MLflow runs whose state differs from the home's; notes count lost and other homes' runs."""
    if unreachable_reason(scope.uri) or not _has_tables(scope):
        return
    client, foreign_ids, ids = MlflowClient(tracking_uri=scope.uri), [], set()
    folders = {folder.path.name: folder for folder in all_folders(scope.home)}
    for run in ClientRuns(client).find_tagged(Tag.OWNER, "", "!="):
        id, tags = str(run.info.run_id), run.data.tags
        ids.add(id)
        log, owner = tags.get(Tag.LOG, ""), folders.get(tags[Tag.OWNER])
        locks = [] if owner is None else [owner.path / LOCK]
        if log and Cursor.of(scope.home, log).run_id == id:
            state, locks = _state_of_log(scope.home, log), [*locks, *log_locks(scope.home, log)]
        elif run.info.status != MLFLOW_STATUS[State.RUNNING]:
            continue
        elif owner is None:
            foreign_ids.append(id)
            continue
        else:
            state = _state_of_owner(owner, log)
        status = run.info.status, tags.get(Tag.STATE, "no state")
        if state is not None and status != (MLFLOW_STATUS[state[0]], state[0]) and not any_locked(*locks):
            yield Finding(
                f"MLflow run {id} ({run.info.run_name})",
                f"is {status[0]} ({status[1]}) there, and {state[0]} here",
                f"set to {state[0]}",
                partial(_set_state, client, id, *state, locks),
            )
    if foreign_ids:
        shown_ids = ", ".join(foreign_ids[:SHOWN_IDS]) + (", ..." if len(foreign_ids) > SHOWN_IDS else "")
        problem = "RUNNING in MLflow, of another home: nothing here says whether they live"
        yield Finding(
            f"{format_count(len(foreign_ids), 'run')}: {shown_ids}",
            problem,
            "look from their home",
            note=True,
        )
    if ids:  # `find_undelivered` reports a store without any run of mlcl
        yield from _find_lost_logs(scope, client, ids)


def _find_lost_logs(scope: Scope, client: MlflowClient, ids: Set[str]) -> Iterator[Finding]:
    """Yields a note if runs of delivered logs are neither among the store's active runs `ids` nor deleted.

    They are not sent again by `--fix`, since a user may have removed the runs with `mlflow gc`.
    """
    run_ids = {log: str(Cursor.of(scope.home, log).run_id) for log in delivered_logs(scope.home, scope.uri)}
    lost_ids = [log for log, id in run_ids.items() if id not in ids and existing_run(client, id) is None]
    if lost_ids:
        shown_logs = ", ".join(lost_ids[:SHOWN_IDS]) + (", ..." if len(lost_ids) > SHOWN_IDS else "")
        yield Finding(
            f"{format_count(len(lost_ids), 'log')}: {shown_logs}",
            "delivered, but MLflow has no such run: removed for good, or the store is an older copy; "
            f"without {CURSOR} in {scope.home / 'logs'}/LOG, --fix delivers again",
            "none is needed where the runs were removed",
            note=True,
        )


def _has_tables(scope: Scope) -> bool:
    """Whether the store is a server or a file with content. A request to a missing file would create it."""
    file = sqlite_file(scope.uri)
    return file is None or (file.exists() and file.stat().st_size > 0)


def _state_of_log(home: Path, id: str) -> tuple[State, str] | None:
    """Returns state and reason of a log; None if there is no such log or it has undelivered entries."""
    log, folder = RunLog.find(home, id), log_folder(home, id)
    n_undelivered = pending_entries(folder, Cursor.read(folder).offset)
    return None if log is None or n_undelivered else (log.state, log.reason)


def _state_of_owner(owner: RunFolder, log: str) -> tuple[State, str] | None:
    """Returns state and reason for an MLflow run that the cursor of its log does not name.

    The state is that of the owner's record if the record is for this log and not RUNNING, else STOPPED. None
    if a delivery was interrupted while it created a run for the log: the next delivery may use this run.
    """
    if log and Cursor.of(owner.home, log).creating:
        return None
    record = owner.record
    if record is not None and record.log == log and record.state is not State.RUNNING:
        return record.state, ""
    return State.STOPPED, KILLED


def _set_state(client: MlflowClient, run_id: str, state: State, reason: str, locks: list[Path]) -> None:
    """Sets the tags and the status of an MLflow run, unless another process holds one of the locks."""
    with hold_locks(*locks) as locked:
        if not locked:
            return
        client.set_tag(run_id, Tag.STATE, state.value)
        client.set_tag(run_id, Tag.REASON, reason)
        if state is State.RUNNING:
            client.update_run(run_id, status=MLFLOW_STATUS[state])
        else:
            client.set_terminated(run_id, MLFLOW_STATUS[state])
