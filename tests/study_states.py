"""Whether a study's trials are in the states that a sweep's ledger says."""

from collections.abc import Mapping

import optuna
from optuna.trial import TrialState

from mlcl.service.engine.entries import SpaceVersion
from mlcl.service.engine.ledger import Ledger
from mlcl.service.search.study import STATE
from mlcl.tracking import State


def differences(study: optuna.Study, expected: Mapping[int, State]) -> list[str]:
    """Where the study says something else than `expected`, a line each; empty where they agree."""
    found = {trial.number: trial.state for trial in study.get_trials(deepcopy=False)}
    lines = []
    for number in sorted(found.keys() | expected.keys()):
        here, there = expected.get(number), found.get(number)
        if here is None or there is None or STATE[here] is not there:
            said = ["missing" if state is None else state.name for state in (here, there)]
            lines.append(f"trial {number}: {said[0]} in the sweep, {said[1]} in the study")
    return lines


def study_differences(
    study: optuna.Study, ledger: Ledger, version: SpaceVersion, scope: str = ""
) -> list[str]:
    """Where a study and the ledger disagree. Trials that were taken over ended before they were added."""
    expected = {
        entry.study_number: entry.state
        for entry in ledger.trials(version.number, scope)
        if entry.study_number is not None
    }
    kept = set(version.kept.values())
    states = {trial.number: trial.state for trial in study.get_trials(deepcopy=False)}
    for number in kept & states.keys():
        pruned = states[number] is TrialState.PRUNED
        expected[number] = State.PRUNED if pruned else State.COMPLETE
    return differences(study, expected)
