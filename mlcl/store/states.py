"""The states of a run."""

from __future__ import annotations

from enum import StrEnum


class State(StrEnum):
    """What became of a run; Optuna, MLflow and the command line say the same."""

    RUNNING = "RUNNING"
    COMPLETE = "COMPLETE"
    PRUNED = "PRUNED"
    FAILED = "FAILED"
    BUDGET = "BUDGET"
    STOPPED = "STOPPED"
