"""Checks of what MLflow has: logs that it lacks, and runs whose state differs from their log or record."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path

from mlflow import MlflowClient
from mlflow.entities import Run, RunTag

from mlcl.markup import counted
from mlcl.service.doctor.finding import Finding, Scope
from mlcl.service.doctor.locks import folder_locks, hold_locks, is_locked, log_locks
from mlcl.service.engine.recovery import KILLED
from mlcl.store import RunFolder
from mlcl.tracking import MLFLOW_STATUS, RunLog, State
from mlcl.tracking.cursor import Cursor, pending_entries, undelivered_logs
from mlcl.tracking.delivery import deliver_all
from mlcl.tracking.log import LOG, log_folder
from mlcl.tracking.names import Tag
from mlcl.tracking.network import unreachable_reason
from mlcl.tracking.uri import sqlite_file, stored_uri


def find_undelivered(scope: Scope) -> Iterator[Finding]:
    """Logs with undelivered entries; those that another process delivers are notes."""

    def mend() -> None:
        deliver_all(scope.home, scope.uri, scope.announce)

    for log in undelivered_logs(scope.home):
        what, count = str(log_folder(scope.home, log.id)), f"{log.entries} entries are not delivered"
        if is_locked(*log_locks(scope.home, log.id)):
            yield Finding(what, f"{count}: its command is at it", "none is needed", note=True)
        elif log.uri != stored_uri(scope.uri, scope.home):
            cure = "set MLFLOW_TRACKING_URI to that store, then --fix"
            yield Finding(what, f"{count}: they are for {log.uri}", cure)
        elif log.refusal:
            why = f"{count}: MLflow refused them ({log.refusal})"
            yield Finding(what, why, "tried again; where MLflow refuses again, the log stays", mend)
        else:
            yield Finding(what, count, "delivered", mend)


PAGE = 1000
"""Runs per request."""


class MlflowStore:
    """The runs of one store."""

    def __init__(self, client: MlflowClient) -> None:
        self._client = client

    def runs(self, tag: str) -> Iterator[Run]:
        """The runs that have a tag and were not deleted."""
        experiments = [each.experiment_id for each in self._client.search_experiments()]
        token: str | None = ""
        while experiments and token is not None:
            found = self._client.search_runs(
                experiments, f"tags.`{tag}` != ''", max_results=PAGE, page_token=token or None
            )
            yield from found
            token = found.token or None

    def set_state(self, run_id: str, state: State, reason: str) -> None:
        """Sets the tags and the status as a delivery does."""
        tags = [RunTag(Tag.STATE, state.value), RunTag(Tag.REASON, reason)]
        self._client.log_batch(run_id, tags=tags)
        if state is State.RUNNING:
            self._client.update_run(run_id, status=MLFLOW_STATUS[state])
        else:
            self._client.set_terminated(run_id, MLFLOW_STATUS[state])


def open_store(scope: Scope) -> MlflowStore | None:
    """The store; None where it does not exist or does not answer."""
    path = sqlite_file(scope.uri)
    if unreachable_reason(scope.uri) or (path is not None and not (path.exists() and path.stat().st_size)):
        return None
    return MlflowStore(MlflowClient(tracking_uri=scope.uri))


SHOWN_IDS = 3


def find_wrong_states(scope: Scope) -> Iterator[Finding]:
    """Runs with another state in MLflow than here. RUNNING runs of other homes are counted in a note."""
    store = open_store(scope)
    foreign = []
    for run in store.runs(Tag.OWNER) if store is not None else ():
        tags, status = run.data.tags, run.info.status
        locks = folder_locks(scope.home, [tags[Tag.OWNER]])
        if _delivers(scope.home, run):
            truth = _of_log(scope.home, run)
            locks += log_locks(scope.home, tags[Tag.LOG])
        elif status != MLFLOW_STATUS[State.RUNNING]:
            continue
        elif not locks:
            foreign.append(run.info.run_id)
            continue
        else:
            truth = _of_record(scope.home, run)
        if truth is None or is_locked(*locks):
            continue
        if (status, tags.get(Tag.STATE)) == (MLFLOW_STATUS[truth[0]], truth[0]):
            continue
        assert store is not None
        yield Finding(
            f"MLflow run {run.info.run_id} ({run.info.run_name})",
            f"is {status} ({tags.get(Tag.STATE, 'no state')}) there, and {truth[0]} here",
            f"set to {truth[0]}",
            partial(_set, store, run.info.run_id, truth, locks),
        )
    if foreign:
        some = ", ".join(foreign[:SHOWN_IDS]) + (", ..." if len(foreign) > SHOWN_IDS else "")
        why = "RUNNING in MLflow, of another home: nothing here says whether they live"
        yield Finding(f"{counted(len(foreign), 'run')}: {some}", why, "look from their home", note=True)


def _delivers(home: Path, run: Run) -> bool:
    """Whether a log of this home is delivered to this run."""
    id = run.data.tags.get(Tag.LOG, "")
    return bool(id) and Cursor.read(log_folder(home, id)).run_id == run.info.run_id


def _of_log(home: Path, run: Run) -> tuple[State, str] | None:
    """State and reason in the run's log; None where entries are undelivered."""
    id = run.data.tags[Tag.LOG]
    folder = log_folder(home, id)
    if not (folder / LOG).exists() or pending_entries(folder, Cursor.read(folder)):
        return None
    log = RunLog.attach(home, id)
    return log.state, log.reason


def _of_record(home: Path, run: Run) -> tuple[State, str] | None:
    """State and reason in the owner's record, for a run without a log; None where they are unknown."""
    id, owner = run.data.tags.get(Tag.LOG, ""), run.data.tags[Tag.OWNER]
    if id and Cursor.read(log_folder(home, id)).creating:
        return None  # the next delivery may continue this run
    for lock in folder_locks(home, [owner]):
        record = RunFolder(lock.parent).record
        if record is not None and record.log == id and record.state is not State.RUNNING:
            return record.state, ""
    return State.STOPPED, KILLED


def _set(store: MlflowStore, run_id: str, truth: tuple[State, str], locks: list[Path]) -> None:
    with hold_locks(*locks) as mine:
        if mine:
            store.set_state(run_id, *truth)
