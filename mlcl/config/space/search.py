"""The search of a space: samplers, schedulers, goals and fresh seeds."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from mlcl.config.section import Section, as_tuple, validation_metric
from mlcl.errors import UserError, did_you_mean
from mlcl.plugins import registry


@dataclass(frozen=True)
class Sampler:
    """A sampler, which proposes the settings of trials.

    `type` is its class as `module:name`, and `options` are the arguments besides the seed; with `startup` it
    also takes the number of random trials at the start. An `exhaustive` sampler tries every combination once
    and then ends, so no domain may be continuous. `several_goals` says whether it can optimise
    several metrics.
    """

    type: str
    options: Mapping[str, Any] = field(default_factory=dict)
    startup: bool = False
    exhaustive: bool = False
    several_goals: bool = True


SAMPLERS = {
    "tpe": Sampler(
        "optuna.samplers:TPESampler",
        # With a constant liar, draws would depend on the trials that run at that moment.
        {"multivariate": True, "group": True, "constant_liar": False},
        startup=True,
    ),
    "gp": Sampler("optuna.samplers:GPSampler", {"warn_independent_sampling": False}, startup=True),
    "cmaes": Sampler(
        "mlcl.service.search.study:CheckedCmaEsSampler",
        # The margin keeps the variance of integers from becoming 0. Choices are drawn at random.
        {"with_margin": True, "warn_independent_sampling": False},
        startup=True,
        several_goals=False,
    ),
    "random": Sampler("optuna.samplers:RandomSampler"),
    "brute_force": Sampler("optuna.samplers:BruteForceSampler", exhaustive=True),
}
SamplerName = Literal["tpe", "gp", "cmaes", "random", "brute_force"]
Mode = Literal["max", "min"]


def _parse_metrics(value: Any) -> Any:
    metrics = as_tuple(value)
    return tuple(map(validation_metric, metrics)) if isinstance(metrics, list | tuple) else metrics


class SearchConfig(Section):
    """The search of the space: sampler, scheduler and goals."""

    sampler: SamplerName = Field("tpe", description="how trials are proposed")
    scheduler: Literal["asha", "hyperband", "median", "none"] = Field(
        "asha", description="which trials stop early"
    )
    metric: Annotated[tuple[str, ...], BeforeValidator(_parse_metrics), Field(min_length=1)] | None = Field(
        None, description="one, or several for a Pareto front; default: the job's evaluation.metric"
    )
    mode: Annotated[tuple[Mode, ...], BeforeValidator(as_tuple), Field(min_length=1)] | None = Field(
        None, description="one for all or one a metric; default: by the metric's name"
    )
    prune_by: Annotated[str | None, BeforeValidator(validation_metric)] = Field(
        None, description="of several metrics, the one by which trials stop early"
    )
    seed: int = Field(0, ge=0, description="of the sampler")
    race_seeds: int = Field(
        2, ge=0, lt=500, description="fresh seeds on which the best trials race on validation; 0: no race"
    )
    grace: int = Field(1, ge=1, description="validations before a trial may be stopped early")
    reduction_factor: int = Field(3, ge=2, description="one in so many trials passes a rung")
    startup: int = Field(
        10, ge=1, description="random trials first; for median also complete trials before it stops any"
    )
    prior: str | None = Field(
        None, description="settings of other data that come first: `features`, `features_labels`, or a file"
    )
    stop: Literal["evidence"] | None = Field(
        None, description="evidence: leave out trials that are expected to gain less than evaluation.margin"
    )
    max_failed: int | None = Field(
        5, ge=0, description="more failures in a row than this stop the sweep; null: none do"
    )


@dataclass(frozen=True)
class Goal:
    """A metric, and whether it is maximised or minimised."""

    metric: str
    mode: Mode


HALF_SUFFIX = "_at_half"
"""The suffix of the names of metrics that are computed at the threshold 0.5."""


def default_mode(metric: str) -> Mode:
    """Returns the declared mode of a metric. Metrics without a declaration are maximised, except `loss`."""
    name, metrics = metric.rpartition("/")[2].removesuffix(HALF_SUFFIX), registry("metrics")
    if name in metrics:
        mode: Mode = metrics[name].mode
        return mode
    for declaration in metrics.values():
        if declaration.per_aspect and name.startswith(f"{declaration.name}_"):
            aspect_mode: Mode = declaration.mode
            return aspect_mode
    return "min" if name == "loss" else "max"


def read_goals(search: SearchConfig, default: str) -> tuple[tuple[Goal, ...], Goal]:
    """Returns the goals of a search, by default `default`, and the goal by which trials stop early.

    Raises UserError if the keys of the search contradict each other, or a metric is not one on validation.
    """
    metrics = search.metric or (default,)
    for metric in metrics:
        if not metric.startswith(("val/", "knn/val/")):
            problem, allowed = "selection uses validation only", "val/... or knn/val/..."
            raise UserError(problem, key="search.metric", found=metric, allowed=allowed)
    if len(set(metrics)) < len(metrics):
        raise UserError("names a metric twice", key="search.metric", found=metrics)
    modes = search.mode or tuple(map(default_mode, metrics))
    if len(modes) == 1:
        modes *= len(metrics)
    if len(modes) != len(metrics):
        problem = "is neither one for all metrics nor one for each"
        allowed = f"1 or {len(metrics)} of max, min"
        raise UserError(problem, key="search.mode", found=modes, allowed=allowed)
    if len(metrics) > 1 and not SAMPLERS[search.sampler].several_goals:
        problem, found = "follows one metric only", search.sampler
        allowed = ", ".join(name for name, sampler in SAMPLERS.items() if sampler.several_goals)
        raise UserError(problem, key="search.sampler", found=found, allowed=allowed)
    if len(metrics) > 1 and search.stop is not None:
        raise UserError("looks at one metric only", key="search.stop", found=search.stop, allowed="null")
    goals = tuple(Goal(metric, mode) for metric, mode in zip(metrics, modes, strict=True))
    return goals, _pruning_goal(search, goals)


def _pruning_goal(search: SearchConfig, goals: tuple[Goal, ...]) -> Goal:
    metrics = [goal.metric for goal in goals]
    if search.prune_by is None:
        if len(goals) > 1 and search.scheduler != "none":
            problem = f"{search.scheduler} stops trials by one of several metrics: name it"
            raise UserError(problem, key="search.prune_by", allowed=metrics)
        return goals[0]
    if search.prune_by not in metrics:
        problem = f"is none of the search's metrics{did_you_mean(search.prune_by, metrics)}"
        raise UserError(problem, key="search.prune_by", found=search.prune_by, allowed=metrics)
    return goals[metrics.index(search.prune_by)]


SEEDS_OF_A_SEARCH = 1000
"""The distance between the first seeds of two consecutive searches."""


def fresh_seeds(seed: int, search: int, count: int) -> range:
    """Returns the seeds on which the settings that a search (numbered from 1) picks are trained again.

    `seed` is the job's. Neither the trials nor the races of any search of the job use these seeds.

    Example:
        >>> [*fresh_seeds(0, 1, 2), *fresh_seeds(0, 2, 2)]
        [1, 2, 1001, 1002]
    """
    first = seed + SEEDS_OF_A_SEARCH * (search - 1) + 1
    return range(first, first + count)


def fresh_seeds_of(searches: int, count: int) -> list[int]:
    """Returns the fresh seeds of a cell's searches. Each search has an equal part of `count`, rounded up."""
    part = math.ceil(count / searches)
    return [seed for number in range(1, searches + 1) for seed in fresh_seeds(0, number, part)]
