"""Turns a job into MLflow parameters, with short and log-scaled ones for the charts of MLflow's pages."""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Mapping
from typing import Any

from mlcl.config import JobConfig, dump_job, flatten
from mlcl.tracking.names import CLASSIFIER_WEIGHT, GAMMA, LOG10, MAX_PARAM, SHORT


def params_of(job: JobConfig, free: Collection[str] = ()) -> dict[str, str]:
    """Returns a job's dotted keys, without those in `free`, as MLflow parameters, with derived parameters."""
    params = log_parameters(_job_settings(job, free))
    weight = job.objective.classifier_weight
    gamma = {GAMMA: f"{1 - round(weight, 12):.4g}"} if job.objective.heads else {}
    return params | gamma


def typed_params(job: JobConfig, free: Collection[str] = ()) -> dict[str, Any]:
    """Returns the parameters of `params_of` without the derived ones, as numbers, booleans and strings."""
    return plain_parameters(_job_settings(job, free))


def _job_settings(job: JobConfig, free_keys: Collection[str]) -> dict[str, Any]:
    keys = flatten(
        {name: section for name, section in dump_job(job).items() if name not in ("tracking", "plugins")}
    )
    if job.plugins:
        keys["plugins"] = [plugin.label for plugin in job.plugins]
    weight = round(job.objective.classifier_weight, 12)  # rounded, since it may be 1 minus other weights
    return {key: value for key, value in keys.items() if key not in free_keys} | {CLASSIFIER_WEIGHT: weight}


def log_parameters(settings: Mapping[str, Any]) -> dict[str, str]:
    """Returns dotted keys as MLflow parameters: the keys of `plain_parameters`, and derived parameters.

    Derived from a key are its short name (see `SHORT`) and, for temperatures and learning rates, the
    logarithm as `log10.NAME`, since MLflow's parallel coordinates and contour plots have linear axes only.
    """
    params: dict[str, str] = {}
    for name, value in plain_parameters(settings).items():
        params |= {name: param_text(value), **_derive_params(name, value)}
    return params


def plain_parameters(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the keys whose values are not None or {}, and a key `KEY.INDEX` for each item of a list.

    Numbers and booleans are not converted; lists and other values become text. Items of lists under
    `evaluation.` are left out: these are grids, which would only fill MLflow's menus.
    """
    params: dict[str, Any] = {}
    for key, value in settings.items():
        if value is None or value == {}:
            continue
        params[key] = _to_plain(value)
        if isinstance(value, list | tuple) and not key.startswith("evaluation."):
            params |= {f"{key}.{index}": _to_plain(item) for index, item in enumerate(value)}
    return params


def _to_plain(value: Any) -> Any:
    return value if isinstance(value, bool | int | float) else param_text(value)


def without_derived(params: Mapping[str, str]) -> dict[str, str]:
    """Returns logged parameters without the derived ones, that is short names and logarithms."""
    return {name: text for name, text in params.items() if not _DERIVED.match(name)}


def axis(key: str) -> str:
    """Returns the parameter for a key on a chart's axis: short name or key, after `log10.` if log-scaled."""
    name = short_name(key) or key
    return f"{LOG10}{name}" if _is_log_scaled(key) else name


def short_name(key: str) -> str | None:
    """Returns the short name of a key by `SHORT`; None if the key has no short name."""
    names = (re.sub(pattern, name, key) for pattern, name in SHORT.items() if re.fullmatch(pattern, key))
    return next(names, None)


_DERIVED = re.compile(rf"{re.escape(LOG10)}|(tau|alpha)\.|(tau|k|lambda|gamma)$")


def _derive_params(key: str, value: Any) -> dict[str, str]:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return {}
    alias = short_name(key)
    params = {} if alias is None else {alias: f"{value:.4g}"}
    if _is_log_scaled(key) and value > 0:
        params[f"{LOG10}{alias or key}"] = f"{math.log10(value):.4g}"
    return params


def _is_log_scaled(key: str) -> bool:
    return key in ("train.lr", "train.encoder_lr") or ".temperature" in key


def param_text(value: Any) -> str:
    """Returns the value as the text that MLflow stores, cut to `MAX_PARAM` characters."""
    if isinstance(value, float):
        return repr(value)  # the shortest text that reads back as the same number
    return str(value)[:MAX_PARAM]
