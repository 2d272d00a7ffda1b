"""The corners of a space: where it can break a job."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from mlcl.config.job import JobConfig, dump_job
from mlcl.config.loader import load_job
from mlcl.config.space.branches import branch_to
from mlcl.config.space.error_location import Place
from mlcl.config.space.space import Space
from mlcl.errors import UserError


def corners(space: Space) -> list[dict[str, Any]]:
    """Overrides at the ends of all ranges, with every choice in turn and in every branch of `when`.

    Their number grows with the sum of what the parameters may be, not with its product.
    """
    found = [_filled(space, {}, 0), _filled(space, {}, -1), dict(space.posthoc)]
    for parameter in space.parameters:
        if parameter.condition is None and not parameter.domain.listed:
            continue
        branch = branch_to(parameter, space.parameters) or {}
        found += [_filled(space, {**branch, **end}, -1) for end in parameter.domain.ends(parameter.name)]
    return found


def _filled(space: Space, given: dict[str, Any], end: int) -> dict[str, Any]:
    """The given settings, and an end of all other parameters that then exist."""
    settings: dict[str, Any] = {}
    for parameter in space.parameters:
        if parameter.exists(settings):
            chosen = {key: given[key] for key in parameter.keys if key in given}
            settings |= chosen or parameter.domain.ends(parameter.name)[end]
    return settings


def check_corners(space: Space, job: JobConfig, file: str | Path) -> None:
    """Every corner must make a valid job, so that no trial dies of its own settings. Raises UserError."""
    tree = dump_job(job)
    for corner in corners(space):
        try:
            load_job(tree, corner)
        except UserError as error:
            place = Place(file, f"space ({error.key})")
            raise place.error(
                f"leaves what the job allows: {error.problem}", error.found, error.allowed
            ) from None
