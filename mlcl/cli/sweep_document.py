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
        **_told(report, "id", "name", "state", "reason"),
        "verdict": report.verdict and report.verdict.as_dict(),
        "folder": str(report.folder),
        "mlflow_run_id": report.run_id,
        **_told(report, "score", "mode"),
        "goals": [{"metric": goal.metric, "mode": goal.mode} for goal in report.goals],
        "best": report.best and report.best.label,
        "front": [trial.label for trial in report.front],
        **_told(report, "registered", "spent", "undelivered"),
        "dashboard": dashboard,
        "trials": [_trial(trial) for trial in report.trials],
        "baseline_trials": [_trial(trial) for trial in report.baseline_trials],
        "confirmations": [
            {
                **_told(group, "key", "label", "state", "settings"),
                "mlflow_run_id": group.run_id,
                "seeds": [{**_training(seed), "metrics": seed.metrics} for seed in group.seeds],
            }
            for group in report.confirmations
        ],
    }
    plain: dict[str, Any] = finite(tree)
    return plain


def _told(its: Any, *names: str) -> dict[str, Any]:
    return {name: getattr(its, name) for name in names}


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
    return {**_training(trial), **_told(trial, "values", "settings")}


def _training(trained: Trained) -> dict[str, Any]:
    told = _told(trained, "key", "label", "state", "score", "reason", "chosen", "epoch", "seconds")
    return {**told, "mlflow_run_id": trained.run_id}
