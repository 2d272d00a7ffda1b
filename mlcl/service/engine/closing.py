"""Writes the end of a training, run, sweep or table to ledger, log and record, and removes its checkpoint.

Every command that trains first calls `recover`, which closes what killed commands left RUNNING; so does
`mlcl doctor`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from itertools import groupby
from pathlib import Path

from mlcl.errors import MachineError, UserError
from mlcl.results.documents import stop_sweep
from mlcl.results.training_result import training_folder
from mlcl.service.engine.entries import End, Entry
from mlcl.service.engine.ledger import Ledger
from mlcl.store import RESUMABLE, Database, RunFolder, RunFolders, State
from mlcl.tracking import RunLog, log_parameters
from mlcl.tracking.names import MAX_REASON, SCORE, Tag
from mlcl.training.checkpoint import CHECKPOINTS


def write_end(
    end: End,
    log: RunLog | None,
    folder: Path,
    *,
    ledger: Ledger | None = None,
    key: str = "",
    run: RunFolder | None = None,
) -> None:
    """Writes how a training, a run, a sweep or a table ended or was interrupted.

    The ledger (entry `key`) is written first, then the log, and the record (`run`) last: after a kill,
    `recover` takes ends from the ledger, and it looks only at records that are RUNNING. The checkpoint in
    `folder` is removed if the state is COMPLETE or PRUNED. Repeating a call changes nothing. If the state of
    `end` is RUNNING, nothing is written. `log` is None if a kill prevented its start.
    """
    if end.state is State.RUNNING:
        return
    entry = None if ledger is None else ledger.entries[key]
    if ledger is not None and entry is not None and (entry.state, entry.reason) != (end.state, end.reason):
        ledger.close(key, end)
    if log is not None and (log.state, log.reason) != (end.state, end.reason[:MAX_REASON]):
        if entry is not None and run is None:
            _log_results(log, entry)
        log.set_state(end.state, end.reason)
    if run is not None:
        run.set_state(end.state)
    if end.state in (State.COMPLETE, State.PRUNED):  # a failed training keeps its checkpoint for inspection
        for name in CHECKPOINTS:
            (folder / name).unlink(missing_ok=True)


def _log_results(log: RunLog, entry: Entry) -> None:
    if entry.same_as:  # no process trained it and logged its metrics
        log.log_metrics(entry.metrics, step=0)
    if entry.state is State.COMPLETE:
        log.log_params(log_parameters(entry.chosen))
    if entry.ended and entry.score is not None:
        log.log_metrics({SCORE: entry.score}, step=0)
    cost = entry.cost  # of all sessions; logged as tags, which a later session replaces
    log.log_tags(
        {
            Tag.SECONDS: f"{cost.seconds:.3f}",
            Tag.CPU_SECONDS: f"{cost.cpu_seconds:.3f}",
            Tag.GPU_SECONDS: f"{cost.gpu_seconds:.3f}",
        }
    )


def log_id(owner: str, key: str) -> str:
    """Returns the id of the log of the training or confirmation `key` of the sweep or table `owner`."""
    return f"{owner}.{key}"


def end_confirmation_log(log: RunLog, ledger: Ledger, key: str) -> None:
    """Logs a confirmation's state and, if it is COMPLETE, its mean metrics over seeds; can be repeated."""
    state, reason = ledger.confirmation_states[key]
    if (log.state, log.reason) == (state, reason):
        return
    seeds = [entry.metrics for entry in ledger.seeds_of(key) if entry.state is State.COMPLETE]
    if state is State.COMPLETE:
        names = sorted(set.intersection(*(set(metrics) for metrics in seeds)))
        log.log_metrics({n: math.fsum(m[n] for m in seeds) / len(seeds) for n in names}, step=len(seeds))
    log.set_state(state, reason)


def find_checkpoints(home: Path) -> Iterator[tuple[Path, State]]:
    """Yields each checkpoint of a training that has ended, so that no command resumes it, with its state."""
    for folder, record in RunFolders(home).records():
        for file in (folder.path / name for name in CHECKPOINTS):
            if file.exists() and record.state not in RESUMABLE:
                yield file, record.state
    checkpoints = [file for name in CHECKPOINTS for file in home.glob(f"*/*/trials/*/{name}")]
    for owner, files in groupby(sorted(checkpoints), lambda file: file.parents[2]):
        with suppress(UserError):
            entries = Ledger(owner).entries
            for file in files:
                if (entry := entries.get(file.parent.name)) is not None and entry.ended:
                    yield file, entry.state


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
            with folder.try_lock() as locked:
                # Read again: the process of the record may have ended by itself a moment ago.
                latest_record = folder.record
                if not locked or latest_record is None or latest_record.state is not State.RUNNING:
                    continue
                close_ledger(home, folder)
                stop_sweep(folder.path, KILLED)
                log = RunLog.find(home, latest_record.log)
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
    """Sets a killed sweep or table and its trainings to STOPPED in the ledger; the caller holds its lock."""
    ledger = Ledger(folder.path)
    if not ledger.head:
        return
    ledger.append("killed")
    close_trainings(home, ledger, KILLED)
    ledger.append("end", state=State.STOPPED, reason=KILLED)


def close_trainings(home: Path, ledger: Ledger, reason: str) -> None:
    """Sets RUNNING trainings and confirmations to STOPPED; writes each end that its log lacks."""
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
    """Copies the end of a training from the ledger to its run's log and record, if a kill prevented that."""
    run = RunFolders(home).find(entry.key)
    if run is not None:
        with run.try_lock() as locked:
            record = run.record
            if locked and record is not None and record.state in RESUMABLE:
                write_end(entry.last_end, RunLog.find(home, record.log), run.path, run=run)
