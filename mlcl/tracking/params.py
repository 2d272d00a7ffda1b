"""A job as MLflow parameters, named so that MLflow's pages compare runs without editing."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from typing import Any

from mlcl.config import JobConfig, dump_job, flatten
from mlcl.tracking.names import CLASSIFIER_WEIGHT, LOG10, MAX_PARAM


def params_of(job: JobConfig, free: Collection[str] = ()) -> dict[str, str]:
    """The job's dotted keys as parameters, without `free` keys, whose values are chosen after training."""
    keys = flatten(dump_job(job))
    if job.plugins:
        keys["plugins"] = [plugin.label for plugin in job.plugins]
    params = log_parameters({key: value for key, value in keys.items() if key not in free})
    params[CLASSIFIER_WEIGHT] = _text(round(job.objective.classifier_weight, 12))  # 1 less other weights
    return params


def log_parameters(settings: Mapping[str, Any]) -> dict[str, str]:
    """Dotted keys as parameters: also each item of a list, and the log10 of a log-scaled value.

    The lists of the evaluation are grids, whose items are not logged: they would only fill the menus.
    MLflow's parallel coordinates and contour plots have linear axes only; `log10.<key>` gives a logarithmic
    one.
    """
    params: dict[str, str] = {}
    for key, value in settings.items():
        if value is None or value == {}:
            continue
        params[key] = _text(value)
        if isinstance(value, (list, tuple)) and not key.startswith("evaluation."):
            params |= {f"{key}.{place}": _text(item) for place, item in enumerate(value)}
        if _is_log_scaled(key, value):
            params[f"{LOG10}{key}"] = _text(math.log10(value))
    return params


def _is_log_scaled(key: str, value: Any) -> bool:
    scaled = key in ("train.lr", "train.encoder_lr") or key.rpartition(".")[2] == "temperature"
    return scaled and isinstance(value, (int, float)) and value > 0


def _text(value: Any) -> str:
    if isinstance(value, float):
        return repr(value)  # the shortest text that reads back as the same number
    return str(value)[:MAX_PARAM]
