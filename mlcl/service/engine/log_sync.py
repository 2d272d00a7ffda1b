"""Brings a training's log to what the ledger says. Doing it again changes nothing."""

from __future__ import annotations

from mlcl.service.engine.entries import Entry
from mlcl.tracking import RunLog, State, log_parameters
from mlcl.tracking.names import SCORE, Tag


def sync_log(log: RunLog, entry: Entry) -> None:
    """Writes score, chosen post-hoc keys, cost and state of a training to its log."""
    if entry.state is State.RUNNING:
        if log.state is not State.RUNNING:
            log.reopen()
        return
    if (log.state, log.reason) == (entry.state, entry.reason):
        return
    log.reopen()  # an earlier reason must not stay
    if entry.state is State.COMPLETE:
        log.params(log_parameters(entry.chosen))
    if entry.ended and entry.score is not None:
        log.metrics({SCORE: entry.score}, step=0)
    log.tags(_costs(entry))
    log.finish(entry.state, entry.reason)


def _costs(entry: Entry) -> dict[str, str]:
    """What it took over all sessions. Tags, for a later session's replace these."""
    cost = entry.cost
    return {
        Tag.SECONDS: f"{cost.seconds:.3f}",
        Tag.CPU_SECONDS: f"{cost.cpu_seconds:.3f}",
        Tag.GPU_SECONDS: f"{cost.gpu_seconds:.3f}",
    }
