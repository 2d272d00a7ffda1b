"""The settings that a search tries first: those that the user asks for, and the control's best setting."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from mlcl.config import POSTHOC, JobConfig, Parameter, Space, covers, dump_job, flatten, load_job
from mlcl.config.space.domains import Misfit
from mlcl.errors import UserError, did_you_mean
from mlcl.service.engine.entries import Origin
from mlcl.service.search.sampling import align_settings, fit, start


@dataclass(frozen=True)
class Start:
    """A setting that a search tries first; `job` has its exact values, since those of `point` are rounded."""

    point: dict[str, Any]
    origin: Origin
    job: JobConfig | None = None

    def align_settings(self, settings: Mapping[str, Any]) -> dict[str, Any]:
        """Returns `settings`, with the value of `job` in place of each that equals it up to rounding."""
        return dict(settings) if self.job is None else align_settings(settings, flatten(dump_job(self.job)))


def asked_start(space: Space, job: JobConfig, setting: Mapping[str, Any]) -> Start:
    """Returns the start at a setting that the user asked for; other keys of the space keep the job's values.

    Raises UserError if the setting has no key, a key that the space lacks, or a value outside the space.
    """
    if not setting:
        raise UserError("sets no key", key="--try", allowed="key=value,...")
    keys = [key for parameter in space.parameters for key in parameter.keys]
    for key, value in setting.items():
        if key in POSTHOC:
            problem = "is answered after training at all its values: no trial has one of them"
            raise UserError(problem, key=f"--try {key}", found=value)
        if key not in keys:
            problem = f"is no key of the space{did_you_mean(key, keys)}"
            raise UserError(problem, key="--try", found=key, allowed=keys)
    try:
        start_job = load_job(dump_job(job), setting)
    except UserError as error:
        raise error.with_fields(key=f"--try {error.key}") from None
    try:
        point = fit(space, flatten(dump_job(start_job)), flatten(dump_job(job)))
    except Misfit as error:
        setting_text = ", ".join(f"{key}={value}" for key, value in setting.items())
        problem = f"the space does not have this setting: {error}"
        raise UserError(problem, key="--try", found=setting_text) from None
    return Start(point, "asked for", start_job)


def asked_starts(space: Space, job: JobConfig, settings: Sequence[Mapping[str, Any]]) -> Iterator[Start]:
    """Yields starts at the settings asked for, without keys that the space lacks; skips those outside it."""
    keys = {key for parameter in space.parameters for key in parameter.keys}
    for setting in settings:
        with suppress(UserError):
            yield asked_start(space, job, {key: value for key, value in setting.items() if key in keys})


def control_start(space: Space, job: Mapping[str, Any], settings: Mapping[str, Any]) -> dict[str, Any] | None:
    """Returns the point in the space of a job with heads that is nearest to a setting of its control.

    The point has the control's drawn values (`settings`), the smallest weights of the heads that the space
    allows, and otherwise the values of the flat `job` as written. Returns None if it is outside the space.
    """
    nearest_job = dict(job)
    changes = [
        settings,
        *(weights for parameter in space.parameters if (weights := _least_weights(parameter))),
    ]
    for values in changes:
        nearest_job = {k: v for k, v in nearest_job.items() if not any(covers(key, k) for key in values)}
        nearest_job |= flatten(values)
    return start(space, nearest_job)


def _least_weights(parameter: Parameter) -> dict[str, Any]:
    """Returns the head weights with the smallest sum that a parameter draws; empty for other parameters."""
    if not all(key.startswith("objective.heads.") and key.endswith(".weight") for key in parameter.keys):
        return {}
    ends = sorted(parameter.domain.ends(parameter.name), key=_total_weight)
    return ends[0] if _total_weight(ends[0]) < _total_weight(ends[-1]) else {}


def _total_weight(weights: Mapping[str, float]) -> float:
    return math.fsum(weights.values())
