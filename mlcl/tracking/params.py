"""A job as MLflow parameters, named so that MLflow's pages compare runs without editing."""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Mapping
from typing import Any

from mlcl.config import JobConfig, dump_job, flatten
from mlcl.tracking.names import CLASSIFIER_WEIGHT, GAMMA, LOG10, MAX_PARAM, SHORT


def params_of(job: JobConfig, free: Collection[str] = ()) -> dict[str, str]:
    """The job's dotted keys as parameters, without `free` keys, whose values are chosen after training."""
    keys = flatten({name: its for name, its in dump_job(job).items() if name != "tracking"})
    if job.plugins:
        keys["plugins"] = [plugin.label for plugin in job.plugins]
    params = log_parameters({key: value for key, value in keys.items() if key not in free})
    weight = round(job.objective.classifier_weight, 12)  # 1 less other weights
    mix = {GAMMA: f"{1 - weight:.4g}"} if job.objective.heads else {}
    return params | log_parameters({CLASSIFIER_WEIGHT: weight}) | mix


def log_parameters(settings: Mapping[str, Any]) -> dict[str, str]:
    """Dotted keys as parameters: also each item of a list, a short name, and the log10 of what is log-scaled.

    The lists of the evaluation are grids, whose items are not logged: they would only fill the menus.
    MLflow's parallel coordinates and contour plots have linear axes only; `log10.NAME` gives a logarithmic
    one.
    """
    params: dict[str, str] = {}
    for key, value in settings.items():
        if value is None or value == {}:
            continue
        params[key] = _text(value)
        is_list = isinstance(value, (list, tuple)) and not key.startswith("evaluation.")
        items = {f"{key}.{place}": item for place, item in enumerate(value)} if is_list else {}
        params |= {name: _text(item) for name, item in items.items()}
        for name, item in {key: value, **items}.items():
            params |= _derived(name, item)
    return params


def written(params: Mapping[str, str]) -> dict[str, str]:
    """Logged parameters without those that are derived from others: short names and logarithms."""
    return {name: text for name, text in params.items() if not _DERIVED.match(name)}


def axis(key: str) -> str:
    """The parameter that shows a key best in a chart: short where there is a short name, else log-scaled."""
    name = short_name(key) or key
    return f"{LOG10}{name}" if _is_log_scaled(key) else name


def short_name(key: str) -> str | None:
    """The short name of a key; None for most."""
    found = (re.sub(pattern, name, key) for pattern, name in SHORT.items() if re.fullmatch(pattern, key))
    return next(found, None)


_DERIVED = re.compile(rf"{re.escape(LOG10)}|(tau|alpha)\.|(tau|k|lambda|gamma)$")


def _derived(key: str, value: Any) -> dict[str, str]:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return {}
    short = short_name(key)
    derived = {} if short is None else {short: f"{value:.4g}"}
    if _is_log_scaled(key) and value > 0:
        derived[f"{LOG10}{short or key}"] = f"{math.log10(value):.4g}"
    return derived


def _is_log_scaled(key: str) -> bool:
    return key in ("train.lr", "train.encoder_lr") or ".temperature" in key


def _text(value: Any) -> str:
    if isinstance(value, float):
        return repr(value)  # the shortest text that reads back as the same number
    return str(value)[:MAX_PARAM]
