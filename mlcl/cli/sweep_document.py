"""A sweep for programs: what `--json` prints, in values that JSON has."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mlcl.service.search.summary import SweepReport, Trained


def document(report: SweepReport, dashboard: str) -> dict[str, Any]:
    """The whole report as one tree."""
    tree = {
        "id": report.id,
        "name": report.name,
        "state": report.state,
        "reason": report.reason,
        "verdict": report.verdict and report.verdict.as_dict(),
        "folder": str(report.folder),
        "mlflow_run_id": report.run_id,
        "score": report.score,
        "mode": report.mode,
        "goals": [{"metric": goal.metric, "mode": goal.mode} for goal in report.goals],
        "best": report.best and report.best.label,
        "front": [trial.label for trial in report.front],
        "registered": report.registered,
        "spent": report.spent,
        "undelivered": report.undelivered,
        "dashboard": dashboard,
        "trials": [_trial(trial) for trial in report.trials],
        "baseline_trials": [_trial(trial) for trial in report.baseline_trials],
        "confirmations": [
            {
                "key": group.key,
                "label": group.label,
                "state": group.state,
                "settings": group.settings,
                "mlflow_run_id": group.run_id,
                "seeds": [{**_training(seed), "metrics": seed.metrics} for seed in group.seeds],
            }
            for group in report.confirmations
        ],
    }
    plain: dict[str, Any] = finite(tree)
    return plain


def finite(value: Any) -> Any:
    """The same tree with null for NaN and infinity, which JSON does not have."""
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, Mapping):
        return {key: finite(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [finite(item) for item in value]
    return value


def _trial(trial: Trained) -> dict[str, Any]:
    return {**_training(trial), "values": trial.values, "settings": trial.settings}


def _training(trained: Trained) -> dict[str, Any]:
    return {
        "key": trained.key,
        "label": trained.label,
        "state": trained.state,
        "score": trained.score,
        "reason": trained.reason,
        "chosen": trained.chosen,
        "epoch": trained.epoch,
        "seconds": trained.seconds,
        "mlflow_run_id": trained.run_id,
    }
