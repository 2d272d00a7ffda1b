"""From a resolved job to its point in a space."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from mlcl.config import Space, covers, flatten
from mlcl.config.space.domains import CLOSE, Misfit
from mlcl.config.space.keys import same

FREE = ("train.seed", "train.threads", "evaluation.metric", "evaluation.knn")
"""Keys in which a job may differ from the swept one: they do not change what its settings are worth."""
CLASSIFIER = "objective.classifier.weight"


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
            found = parameter.domain.point_of(parameter.name, job)
            point |= found
            settings |= parameter.domain.settings_at(parameter.name, found)
    _check_rest(settings, job, base)
    return point


def start(space: Space, job: Mapping[str, Any]) -> dict[str, Any] | None:
    """The point of the swept job itself, flat; None where the space does not hold it."""
    try:
        return fit(space, job, job)
    except Misfit:
        return None


def agree(job: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Whether two flat jobs are the same but for the last digits of their numbers."""
    return all(_agree(job.get(key), other.get(key)) for key in job.keys() | other.keys())


def exact(settings: Mapping[str, Any], job: Mapping[str, Any]) -> dict[str, Any]:
    """Settings with the digits of a flat job, where both have the same number: weights lose the last ones."""
    return {key: job[key] if _agree(job.get(key), value) else value for key, value in settings.items()}


def _in_numbers(space: Space, job: Mapping[str, Any]) -> Mapping[str, Any]:
    """The job with the classifier's remainder as a number, where the space draws it as one."""
    drawn = any(CLASSIFIER in parameter.keys for parameter in space.parameters)
    if not drawn or job.get(CLASSIFIER) != "remainder":
        return job
    heads = [v for key, v in job.items() if key.startswith("objective.heads.") and key.endswith(".weight")]
    return {**job, CLASSIFIER: max(0.0, 1 - math.fsum(heads))}


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
