"""Writes the end of a training, run, sweep or table to ledger, log and record, and removes its checkpoint."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from itertools import groupby
from pathlib import Path

from mlcl.errors import UserError
from mlcl.service.engine.entries import End, Entry
from mlcl.service.engine.ledger import Ledger
from mlcl.store import RESUMABLE, RunFolder, RunFolders, State
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
    """Writes how a training, a run, a sweep or a table ended or was interrupted, and removes its checkpoint.

    The ledger (entry `key`) is written first, then the log, and the record (`run`) last: after a kill, a
    recovery takes ends from the ledger, and it looks only at records that are RUNNING. Repeating a call
    changes nothing, and a state of RUNNING writes nothing. `log` is None if a kill prevented its start.
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
    drop_checkpoint(folder, end.state)


def _log_results(log: RunLog, entry: Entry) -> None:
    if entry.same_as:  # its process, which there was none of, logs the metrics of a training
        log.metrics(entry.metrics, step=0)
    if entry.state is State.COMPLETE:
        log.params(log_parameters(entry.chosen))
    if entry.ended and entry.score is not None:
        log.metrics({SCORE: entry.score}, step=0)
    cost = entry.cost  # over all sessions: as tags, which a later session replaces
    log.tags(
        {
            Tag.SECONDS: f"{cost.seconds:.3f}",
            Tag.CPU_SECONDS: f"{cost.cpu_seconds:.3f}",
            Tag.GPU_SECONDS: f"{cost.gpu_seconds:.3f}",
        }
    )


def drop_checkpoint(folder: Path, state: State) -> None:
    """Removes the checkpoint of a complete or pruned training; a failed one keeps it for inspection."""
    if state in (State.COMPLETE, State.PRUNED):
        for name in CHECKPOINTS:
            (folder / name).unlink(missing_ok=True)


def find_checkpoints(home: Path) -> Iterator[tuple[Path, State]]:
    """Yields each checkpoint that no command will resume from, with the state of its training."""
    for folder, record in RunFolders(home).records():
        for file in (folder.path / name for name in CHECKPOINTS):
            if file.exists() and record.state not in RESUMABLE:
                yield file, record.state
    found = [file for name in CHECKPOINTS for file in home.glob(f"*/*/trials/*/{name}")]
    for owner, files in groupby(sorted(found), lambda file: file.parents[2]):
        with suppress(UserError):
            entries = Ledger(owner).entries
            for file in files:
                if (entry := entries.get(file.parent.name)) is not None and entry.ended:
                    yield file, entry.state
