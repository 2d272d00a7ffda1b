"""The names under which a run appears in MLflow, so that its pages compare runs without editing."""

from __future__ import annotations

import math
from enum import StrEnum
from typing import Any

from mlcl.config import JobConfig, dump_job, flatten

MAX_PARAM = 6000
"""Longest parameter value that MLflow's stores keep."""


class State(StrEnum):
    """What became of a run; Optuna, MLflow and the command line say the same."""

    RUNNING = "RUNNING"
    COMPLETE = "COMPLETE"
    PRUNED = "PRUNED"
    FAILED = "FAILED"
    BUDGET = "BUDGET"
    STOPPED = "STOPPED"


MLFLOW_STATUS = {
    State.RUNNING: "RUNNING",
    State.COMPLETE: "FINISHED",
    State.PRUNED: "KILLED",
    State.FAILED: "FAILED",
    State.BUDGET: "KILLED",
    State.STOPPED: "KILLED",
}
"""MLflow knows fewer states; the tag `mlcl.state` has the exact one."""


def params_of(job: JobConfig) -> dict[str, str]:
    """The job's dotted keys, plus log10 of every temperature and of the learning rate.

    MLflow's parallel coordinates and contour plots have linear axes only; a logarithmic one is had by
    plotting `log10.<key>`.
    """
    params: dict[str, str] = {}
    for key, value in flatten(dump_job(job)).items():
        if value is None or value == {}:
            continue
        params[key] = _text(value)
        if _is_log_scaled(key, value):
            params[f"log10.{key}"] = _text(math.log10(value))
    params["objective.classifier.weight_value"] = _text(job.objective.classifier_weight)
    return params


def _is_log_scaled(key: str, value: Any) -> bool:
    scaled = key == "train.lr" or key.rpartition(".")[2] == "temperature"
    return scaled and isinstance(value, (int, float)) and value > 0


def _text(value: Any) -> str:
    if isinstance(value, float):
        return repr(round(value, 12))
    return str(value)[:MAX_PARAM]
