"""Telling MLflow and Optuna what the ledger says. Telling it again changes nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import optuna
from optuna.trial import TrialState

from mlcl.service.engine.ledger import Entry, Ledger, SpaceVersion
from mlcl.service.runs.crash_recovery import KILLED
from mlcl.service.runs.run_store import RunFolder, RunRecord
from mlcl.service.search.study import differences, tell
from mlcl.tracking import RunLog, State, log_parameters
from mlcl.tracking.names import SCORE, Tag
from mlcl.tracking.undelivered import owned_by


def log_id(sweep: str, key: str) -> str:
    """The id of a training's log: the sweep's own log has the sweep's id."""
    return f"{sweep}.{key}"


def sync_log(home: Path, sweep: str, entry: Entry) -> None:
    """A training's score, chosen post-hoc keys and state, to its log."""
    log = RunLog.attach(home, log_id(sweep, entry.key))
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
    return {
        Tag.SECONDS: f"{entry.seconds:.3f}",
        Tag.CPU_SECONDS: f"{entry.cpu_seconds:.3f}",
        Tag.GPU_SECONDS: f"{entry.gpu_seconds:.3f}",
    }


def sync_study(study: optuna.Study, entry: Entry) -> None:
    """A search trial's rungs, values, settings and state, to its study."""
    assert entry.study_number is not None
    attrs: dict[str, Any] = {
        "settings": dict(entry.settings),
        "label": entry.label,
        "state": entry.state,
        "reason": entry.reason,  # also where there is none: an earlier one must not stay
    }
    if entry.chosen:
        attrs["chosen"] = dict(entry.chosen)
    values = entry.values if entry.state is State.COMPLETE else None
    tell(study, entry.study_number, entry.state, values, entry.rungs, attrs)


def study_differences(study: optuna.Study, ledger: Ledger, generation: SpaceVersion) -> list[str]:
    """Where a study and the ledger disagree. Trials that were taken over ended before they were added."""
    expected = {
        entry.study_number: entry.state
        for entry in ledger.trials(generation.number)
        if entry.study_number is not None
    }
    kept = set(generation.kept.values())
    states = {trial.number: trial.state for trial in study.get_trials(deepcopy=False)}
    for number in kept & states.keys():
        pruned = states[number] is TrialState.PRUNED
        expected[number] = State.PRUNED if pruned else State.COMPLETE
    return differences(study, expected)


def close_killed_sweep(folder: RunFolder, _record: RunRecord) -> None:
    """A sweep whose command was killed: its ledger and logs say STOPPED until a command goes on with it.

    Its study is told by that command alone: the storage may not be in reach of this one.
    """
    ledger = Ledger(folder.path)
    if ledger.head:
        ledger.append("killed")
    home = folder.path.parent.parent
    started = set(owned_by(home, folder.path.name))
    for entry in ledger.entries.values():
        if entry.state is State.RUNNING:
            ledger.append(
                "close",
                key=entry.key,
                state=State.STOPPED,
                score=None,
                values=[],
                metrics={},
                chosen={},
                reason=KILLED,
            )
        if log_id(folder.path.name, entry.key) in started:
            sync_log(home, folder.path.name, entry)
    for key in ledger.groups.keys() - ledger.group_states.keys():
        ledger.append("close_group", key=key, state=State.STOPPED, reason=KILLED)
    if ledger.head:
        ledger.append("end", state=State.STOPPED, reason=KILLED)
