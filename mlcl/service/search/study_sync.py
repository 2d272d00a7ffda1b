"""Brings an Optuna study to what the ledger says. Doing it again changes nothing."""

from __future__ import annotations

from typing import Any

import optuna
from optuna.trial import TrialState

from mlcl.service.engine.entries import Entry, SpaceVersion
from mlcl.service.engine.ledger import Ledger
from mlcl.service.search.study import differences, tell
from mlcl.tracking import State


def sync_study(study: optuna.Study, entry: Entry) -> None:
    """Tells a search trial's rungs, values, settings and state to its study."""
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


def study_differences(study: optuna.Study, ledger: Ledger, version: SpaceVersion) -> list[str]:
    """Where a study and the ledger disagree. Trials that were taken over ended before they were added."""
    expected = {
        entry.study_number: entry.state
        for entry in ledger.trials(version.number)
        if entry.study_number is not None
    }
    kept = set(version.kept.values())
    states = {trial.number: trial.state for trial in study.get_trials(deepcopy=False)}
    for number in kept & states.keys():
        pruned = states[number] is TrialState.PRUNED
        expected[number] = State.PRUNED if pruned else State.COMPLETE
    return differences(study, expected)
