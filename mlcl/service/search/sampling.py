"""Translates between a search space and Optuna: distributions, points, and settings of a job.

A point has a value for each name of `distributions`, as Optuna draws it: a choice is given by its index, and
the weights of a simplex by stick-breaking fractions. Settings are values by job key.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import optuna
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.samplers import RandomSampler

from mlcl.config import JobConfig, Space, covers, dump_job, flatten, load_job
from mlcl.config.space.domains import CLOSE, Choice, Dimension, Domain, Misfit
from mlcl.config.space.keys import are_equal
from mlcl.config.space.prior import begin_at
from mlcl.config.space.space import branches

FREE = ("train.seed", "train.threads", "evaluation.metric", "evaluation.knn")
"""Keys in which the job of an earlier trial may differ from the swept job although the trial is reused."""
CLASSIFIER = "objective.classifier.weight"
CONTINUOUS = "continuous"


def distributions(space: Space) -> dict[str, BaseDistribution]:
    """Returns Optuna's distributions of all parameters of a space, by the names of their dimensions."""
    return {
        name: _distribution(dimension)
        for parameter in space.parameters
        for name, dimension in parameter.domain.dimensions(parameter.name).items()
    }


def _distribution(dimension: Dimension) -> BaseDistribution:
    match dimension.kind:
        case "number":
            return FloatDistribution(dimension.low, dimension.high, log=dimension.log)
        case "whole":
            return IntDistribution(int(dimension.low), int(dimension.high))
        case "position":
            return CategoricalDistribution(range(int(dimension.high) + 1))


def draw(space: Space, trial: optuna.Trial) -> dict[str, Any]:
    """Draws the settings (by job key) of all parameters whose conditions hold, in the order of the space."""
    settings: dict[str, Any] = {}
    for parameter in space.parameters:
        if parameter.exists(settings):
            dimensions = parameter.domain.dimensions(parameter.name)
            point = {name: _suggest(trial, name, dimension) for name, dimension in dimensions.items()}
            settings |= parameter.domain.settings_at(parameter.name, point)
    return settings


def _suggest(trial: optuna.Trial, name: str, dimension: Dimension) -> Any:
    match dimension.kind:
        case "number":
            return trial.suggest_float(name, dimension.low, dimension.high, log=dimension.log)
        case "whole":
            return trial.suggest_int(name, int(dimension.low), int(dimension.high))
        case "position":
            return trial.suggest_categorical(name, range(int(dimension.high) + 1))


def example(space: Space, seed: int = 0) -> dict[str, Any]:
    """Draws settings of a space at random."""
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    return draw(space, optuna.create_study(sampler=RandomSampler(seed=seed)).ask())


def fit(space: Space, job: Mapping[str, Any], base: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the point of a space that has the values of a job; `job` and `base` are resolved and flat.

    Raises Misfit if a value lies outside the space, or if the job differs from `base`, the swept job, in a
    key that the space does not vary.
    """
    point: dict[str, Any] = {}
    settings: dict[str, Any] = {}
    for parameter in space.parameters:
        if parameter.exists(settings):
            if CLASSIFIER in parameter.keys:
                job = _resolve_remainder(job, parameter.domain)
            values = parameter.domain.point_of(parameter.name, job)
            point |= values
            settings |= parameter.domain.settings_at(parameter.name, values)
    _check_rest(settings, job, base)
    return point


def _resolve_remainder(job: Mapping[str, Any], domain: Domain) -> Mapping[str, Any]:
    """Returns a flat job with the classifier's weight `remainder` as a number, unless the domain lists it."""
    if job.get(CLASSIFIER) != "remainder" or (isinstance(domain, Choice) and "remainder" in domain.values):
        return job
    heads = [v for key, v in job.items() if key.startswith("objective.heads.") and key.endswith(".weight")]
    return {**job, CLASSIFIER: max(0.0, 1 - math.fsum(heads))}


def _check_rest(settings: Mapping[str, Any], job: Mapping[str, Any], base: Mapping[str, Any]) -> None:
    """Raises Misfit unless the job equals `base` with these settings, apart from the keys in FREE."""
    rest = {key: value for key, value in base.items() if not any(covers(name, key) for name in settings)}
    # A flat job has a section as a key only if the section is empty.
    expected = {key: value for key, value in {**rest, **flatten(settings)}.items() if value != {}}
    actual = {key: value for key, value in job.items() if value != {}}
    for key in sorted(expected.keys() | actual.keys()):
        if not any(covers(name, key) for name in FREE) and not _is_close(actual.get(key), expected.get(key)):
            raise Misfit(f"{key} is {actual.get(key)}, the swept job has {expected.get(key)}")


def start(space: Space, job: Mapping[str, Any]) -> dict[str, Any] | None:
    """Returns the point of the space with the values of a flat job; None if a value is outside the space."""
    try:
        return fit(space, job, job)
    except Misfit:
        return None


def why_outside(space: Space, job: JobConfig) -> str:
    """Returns a text on why no trial can have the values of the job as written; '' if one can."""
    flat_job = flatten(dump_job(job))
    try:
        fit(space, flat_job, flat_job)
    except Misfit as error:
        return f"no trial has the job as written: {error}"
    return ""


def prior_starts(space: Space, job: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Returns the points of a space's prior, see `begin_at`, except those that lie outside the space."""
    jobs = [begin_at(space.parameters, job, point) for point in space.prior]
    return [point for flat_job in jobs if (point := start(space, flat_job)) is not None]


def agree(job: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Whether two flat jobs are equal up to rounding errors of their numbers."""
    return all(_is_close(job.get(key), other.get(key)) for key in job.keys() | other.keys())


def align_settings(settings: Mapping[str, Any], job: Mapping[str, Any]) -> dict[str, Any]:
    """Replaces each setting by the flat job's value at its key if both are equal up to rounding."""
    return {key: job[key] if _is_close(job.get(key), value) else value for key, value in settings.items()}


def _is_close(one: Any, other: Any) -> bool:
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(_is_close, one, other))
    if isinstance(one, float) and isinstance(other, float):
        # Weights are computed from stick-breaking fractions, which changes the last digits.
        return math.isclose(one, other, rel_tol=CLOSE, abs_tol=1e-12)
    return are_equal(one, other)


def grid_size(space: Space) -> int | None:
    """Returns the number of points of a space; None if one of its parameters is continuous."""
    if any(parameter.domain.continuous for parameter in space.parameters):
        return None
    return sum(count for _, count in branches(space.parameters))


def describe(space: Space, job: JobConfig) -> dict[str, Any]:
    """Describes a space, resolved against its job, as a dict of plain data."""
    combinations = grid_size(space)
    return {
        "parameters": [
            {"name": parameter.name, **parameter.domain.description(), "when": parameter.condition}
            for parameter in space.parameters
        ],
        "combinations": CONTINUOUS if combinations is None else combinations,
        "posthoc": _describe_posthoc(space, job),
        "goals": [{"metric": goal.metric, "mode": goal.mode} for goal in space.goals],
        "prune_by": space.metric if space.search.scheduler != "none" else None,
        "sampler": space.search.sampler,
        "scheduler": space.search.scheduler,
        "seed": space.search.seed,
        "example": example(space, space.search.seed),
    }


def _describe_posthoc(space: Space, job: JobConfig) -> dict[str, Any] | None:
    """Describes the grid of post-hoc values at which every trial is scored; None without post-hoc keys."""
    if not space.posthoc:
        return None
    knn = load_job(dump_job(job), space.posthoc).evaluation.knn
    assert knn is not None
    assert knn.grid is not None
    grid = {key: list(values) for key, values in knn.grid.model_dump(by_alias=True).items()}
    return {
        "grid": grid,
        "varied": [key.rpartition(".")[2] for key in space.posthoc],
        "settings": math.prod(len(values) for values in grid.values()),
    }
