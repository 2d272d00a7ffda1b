"""From a resolved job to its point in a space."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from mlcl.config import Choice, Float, Parameter, Simplex, Space, flatten
from mlcl.config.space import covers, same
from mlcl.service.search.sampling import simplex
from mlcl.service.search.sampling.dimensions import settings_at, sticks, total

FREE = ("train.seed", "train.threads", "evaluation.metric", "evaluation.knn")
"""Keys in which a job may differ from the swept one: they do not change what its settings are worth."""
CLASSIFIER = "objective.classifier.weight"
CLOSE = 1e-9


class Misfit(Exception):  # noqa: N818 (an answer, not a fault)
    """A job that is no point of the space."""

    def __init__(self, reason: str) -> None:
        self.reason = reason
        super().__init__(reason)


def fit(space: Space, job: Mapping[str, Any], base: Mapping[str, Any]) -> dict[str, Any]:
    """The point of a resolved, flat job, in Optuna's names; `base` is the job that the space is swept over.

    Raises Misfit where a setting lies outside the space, or where the job differs from `base` in a key that
    the space does not vary.
    """
    job = _in_numbers(space, job)
    point: dict[str, Any] = {}
    settings: dict[str, Any] = {}
    for parameter in space.parameters:
        if parameter.exists(settings):
            found = _read(parameter, job)
            point |= found
            settings |= settings_at(parameter, found)
    _check_rest(settings, job, base)
    return point


def _in_numbers(space: Space, job: Mapping[str, Any]) -> Mapping[str, Any]:
    """The job with the classifier's remainder as a number, where the space draws it as one."""
    drawn = any(CLASSIFIER in parameter.keys for parameter in space.parameters)
    if not drawn or job.get(CLASSIFIER) != "remainder":
        return job
    heads = [v for key, v in job.items() if key.startswith("objective.heads.") and key.endswith(".weight")]
    return {**job, CLASSIFIER: max(0.0, 1 - math.fsum(heads))}


def _read(parameter: Parameter, job: Mapping[str, Any]) -> dict[str, Any]:
    """The parameter's dimensions where the job's settings are. Raises Misfit."""
    name, domain = parameter.name, parameter.domain
    if isinstance(domain, Simplex):
        return _read_weights(parameter, domain, job)
    if isinstance(domain, Choice):
        return {name: _position(name, domain, job)}
    value = job.get(name)
    if isinstance(value, (int, float)) and not isinstance(value, bool) and domain.low <= value <= domain.high:
        if isinstance(domain, Float):
            return {name: float(value)}
        if value == int(value):
            return {name: int(value)}
    raise Misfit(f"{name} is {value}, the space has {domain.low:g} to {domain.high:g}")


def _position(name: str, domain: Choice, job: Mapping[str, Any]) -> int:
    """Which of the values the job has. A section counts as chosen by the keys that it shares with a value."""
    section = {key: value for key, value in job.items() if covers(name, key)}
    flat = [flatten({name: value}) for value in domain.values]
    for position, value in enumerate(flat):
        if value.keys() == section.keys() and all(same(value[key], section[key]) for key in value):
            return position
    closest = max(range(len(flat)), key=lambda i: _shared(flat[i], section), default=0)
    if isinstance(domain.values[closest], Mapping) and _shared(flat[closest], section):
        return closest  # other parameters may vary keys of it; _check_rest tells
    raise Misfit(f"{name} is {section.get(name, section or None)}, the space has {list(domain.values)}")


def _shared(value: Mapping[str, Any], section: Mapping[str, Any]) -> int:
    return sum(key in section and same(value[key], section[key]) for key in value)


def _read_weights(parameter: Parameter, domain: Simplex, job: Mapping[str, Any]) -> dict[str, Any]:
    weights = job.get(domain.keys[0]) if domain.size else [job.get(key) for key in domain.keys]
    if (
        not isinstance(weights, list)
        or len(weights) != domain.count
        or not all(isinstance(weight, (int, float)) and weight >= 0 for weight in weights)
    ):
        raise Misfit(f"{parameter.name} is {weights}, the space has {domain.count} weights")
    whole = math.fsum(weights)
    if not domain.low * (1 - CLOSE) <= whole <= domain.high * (1 + CLOSE):
        raise Misfit(
            f"{parameter.name} adds up to {whole:g}, the space has {domain.low:g} to {domain.high:g}"
        )
    found = dict(zip(sticks(parameter), simplex.sticks(weights), strict=True))
    if domain.low < domain.high:
        found[total(parameter)] = min(max(whole, domain.low), domain.high)
    return found


def _check_rest(settings: Mapping[str, Any], job: Mapping[str, Any], base: Mapping[str, Any]) -> None:
    """The point's settings on the swept job must be this job. Raises Misfit."""
    kept = {key: value for key, value in base.items() if not any(covers(each, key) for each in settings)}
    expected = _leaves({**kept, **flatten(settings)})
    found = _leaves(job)
    for key in sorted(expected.keys() | found.keys()):
        if not any(covers(free, key) for free in FREE) and not _agree(found.get(key), expected.get(key)):
            raise Misfit(f"{key} is {found.get(key)}, the swept job has {expected.get(key)}")


def _leaves(flat: Mapping[str, Any]) -> dict[str, Any]:
    """Without empty sections, which stand in a flat job only where nothing is in them."""
    return {key: value for key, value in flat.items() if value != {}}


def _agree(one: Any, other: Any) -> bool:
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(_agree, one, other))
    if isinstance(one, float) and isinstance(other, float):
        # Weights come back from their sticks, which costs the last digits.
        return math.isclose(one, other, rel_tol=CLOSE, abs_tol=1e-12)
    return same(one, other)
