"""The settings that a search tries before it draws any, and the check of those that the user asks for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from mlcl.config import POSTHOC, JobConfig, Space, dump_job, flatten, load_job
from mlcl.config.space.domains import Misfit
from mlcl.errors import UserError, did_you_mean
from mlcl.service.engine.entries import Origin
from mlcl.service.search.sampling import exact, fit


@dataclass(frozen=True)
class Start:
    """A setting that a search tries first; `job` has the exact values, since a point may lose last digits."""

    point: dict[str, Any]
    origin: Origin
    job: JobConfig | None = None

    def exact(self, settings: Mapping[str, Any]) -> dict[str, Any]:
        """Returns the settings of the point, with values of `job` where both are equal up to rounding."""
        return dict(settings) if self.job is None else exact(settings, flatten(dump_job(self.job)))


def asked_start(space: Space, job: JobConfig, setting: Mapping[str, Any]) -> Start:
    """Returns a setting that the user asked for. Keys of the space that it lacks keep the job's values.

    Raises UserError if the space does not vary a key, or does not have a value.
    """
    if not setting:
        raise UserError("sets no key", key="--try", allowed="key=value,...")
    varied = [key for parameter in space.parameters for key in parameter.keys]
    for key, value in setting.items():
        if key in POSTHOC:
            problem = "is answered after training at all its values: no trial has one of them"
            raise UserError(problem, key=f"--try {key}", found=value)
        if key not in varied:
            problem = f"is no key of the space{did_you_mean(key, varied)}"
            raise UserError(problem, key="--try", found=key, allowed=varied)
    try:
        own = load_job(dump_job(job), setting)
    except UserError as error:
        raise error.but(key=f"--try {error.key}") from None
    try:
        point = fit(space, flatten(dump_job(own)), flatten(dump_job(job)))
    except Misfit as error:
        given = ", ".join(f"{key}={value}" for key, value in setting.items())
        problem = f"the space does not have this setting: {error.reason}"
        raise UserError(problem, key="--try", found=given) from None
    return Start(point, "asked for", own)


def asked_starts(space: Space, job: JobConfig, settings: Sequence[Mapping[str, Any]]) -> Iterator[Start]:
    """Yields the settings that the user asked for, as far as the space of this arm has them."""
    varied = {key for parameter in space.parameters for key in parameter.keys}
    for setting in settings:
        with suppress(UserError):
            yield asked_start(space, job, {key: value for key, value in setting.items() if key in varied})
