"""Reads priors: settings that had good scores on other data sets, which a search tries first."""

from __future__ import annotations

from collections.abc import Mapping
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from pydantic import Field

from mlcl.config.safe_yaml import read_yaml
from mlcl.config.section import Section, validate
from mlcl.config.space.domains import Float, Int, Misfit
from mlcl.config.space.keys import nodes
from mlcl.config.space.space import Parameter, Space
from mlcl.errors import UserError, did_you_mean

FOLDER = Path(__file__).parent / "priors"
"""The folder of the packaged priors."""


class Prior(Section):
    """A prior: points, the most useful first. A point maps keys, in which `*` matches any head, to values."""

    about: str = Field(description="where the settings come from")
    points: tuple[dict[str, Any], ...] = Field(min_length=1, description="a value for each key")


def read_prior(name: str, folder: Path) -> Prior:
    """Reads the packaged prior with this name, or else a file in `folder`."""
    files = {file.stem: file for file in FOLDER.glob("*.yaml")}
    file = files.get(name, folder / name)
    if not file.is_file():
        allowed = f"{', '.join(sorted(files))}, or a file"
        raise UserError("no such prior", key="search.prior", found=name, allowed=allowed)
    return validate(Prior, read_yaml(file), file)


def check_prior(space: Space, tree: Mapping[str, Any]) -> None:
    """Raises UserError if a space's prior has a key that no job has, or no key that the space varies.

    `tree` is the resolved tree of the swept job.
    """
    from mlcl.config.schema import key_names  # imports all encoders, which few spaces need

    varied_keys = [key for parameter in space.parameters for key in parameter.keys]
    prior_keys = list(dict.fromkeys(key for point in space.prior for key in point))
    if prior_keys and not any(fnmatchcase(key, pattern) for key in varied_keys for pattern in prior_keys):
        problem = "has no key that this space varies"
        raise UserError(problem, key="search.prior", found=prior_keys, allowed=varied_keys)
    known_names = {key.rpartition(".")[2] for key in nodes(tree)} | key_names() if prior_keys else set()
    for key in prior_keys:
        # Keys of other encoders are allowed, although the space cannot vary them.
        if ".options." not in key and (name := key.rpartition(".")[2]) not in known_names:
            problem = f"has a key that no job has{did_you_mean(name, known_names)}"
            raise UserError(problem, key="search.prior", found=key)


def begin_at(
    parameters: tuple[Parameter, ...], job: Mapping[str, Any], point: Mapping[str, Any]
) -> dict[str, Any]:
    """Returns `job`, resolved and flat, with the values of a prior's `point` for the keys that vary.

    Numbers are clipped to the ranges of the space. Other values that a parameter cannot have are left out.
    """
    result = dict(job)
    for parameter in parameters:
        values = {key: _matching_value(key, point) for key in parameter.keys}
        changes = {key: _clip(parameter, value) for key, value in values.items() if value is not None}
        try:
            parameter.domain.point_of(parameter.name, {**result, **changes})
        except Misfit:
            continue
        result |= changes
    return result


def _matching_value(key: str, point: Mapping[str, Any]) -> Any:
    return next((value for pattern, value in point.items() if fnmatchcase(key, pattern)), None)


def _clip(parameter: Parameter, value: Any) -> Any:
    domain = parameter.domain
    if isinstance(domain, (Float, Int)) and isinstance(value, (int, float)) and not isinstance(value, bool):
        return type(domain.low)(min(max(value, domain.low), domain.high))
    return value
