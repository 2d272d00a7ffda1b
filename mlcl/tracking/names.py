"""The names under which a run appears in MLflow, so that its pages compare runs without editing."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from enum import StrEnum
from typing import Any

from mlcl.config import JobConfig, dump_job, flatten

MAX_PARAM = 6000
"""Longest parameter value that MLflow's stores keep."""
MAX_REASON = 5000
"""Characters of a reason that are kept: what MLflow takes for a tag, with room to spare."""


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


def params_of(job: JobConfig, free: Collection[str] = ()) -> dict[str, str]:
    """The job's dotted keys as parameters, but for the `free` ones: training does not decide their values."""
    keys = flatten(dump_job(job))
    params = log_parameters({key: value for key, value in keys.items() if key not in free})
    params["objective.classifier.weight_value"] = _text(job.objective.classifier_weight)
    return params


def log_parameters(settings: Mapping[str, Any]) -> dict[str, str]:
    """Dotted keys as parameters: each item of a list beside the whole, and log10 of what is log-scaled.

    The lists of the evaluation are grids, whose items nobody compares: they would only fill the menus.

    MLflow's parallel coordinates and contour plots have linear axes only; a logarithmic one is had by
    plotting `log10.<key>`.
    """
    params: dict[str, str] = {}
    for key, value in settings.items():
        if value is None or value == {}:
            continue
        params[key] = _text(value)
        if isinstance(value, (list, tuple)) and not key.startswith("evaluation."):
            params |= {f"{key}.{place}": _text(item) for place, item in enumerate(value)}
        if _is_log_scaled(key, value):
            params[f"log10.{key}"] = _text(math.log10(value))
    return params


def _is_log_scaled(key: str, value: Any) -> bool:
    scaled = key == "train.lr" or key.rpartition(".")[2] == "temperature"
    return scaled and isinstance(value, (int, float)) and value > 0


def _text(value: Any) -> str:
    if isinstance(value, float):
        return repr(round(value, 12))
    return str(value)[:MAX_PARAM]
