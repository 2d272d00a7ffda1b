"""From an Optuna trial to settings of a job, and what a space draws in Optuna's terms."""

from __future__ import annotations

import math
import random
from typing import Any

import optuna
from optuna.distributions import (
    BaseDistribution,
    CategoricalDistribution,
    FloatDistribution,
    IntDistribution,
)

from mlcl.config import Space
from mlcl.config.space.domains import Dimension
from mlcl.config.space.space import Parameter


def distributions_of(parameter: Parameter) -> dict[str, BaseDistribution]:
    """Optuna's distributions of a parameter, by the names of its dimensions."""
    dimensions = parameter.domain.dimensions(parameter.name)
    return {name: _distribution(dimension) for name, dimension in dimensions.items()}


def _distribution(dimension: Dimension) -> BaseDistribution:
    match dimension.kind:
        case "number":
            return FloatDistribution(dimension.low, dimension.high, log=dimension.log)
        case "whole":
            return IntDistribution(int(dimension.low), int(dimension.high))
        case "position":
            return CategoricalDistribution(range(int(dimension.high) + 1))


Overrides = dict[str, Any]


def draw(space: Space, trial: optuna.Trial | _Dice) -> Overrides:
    """One setting of every parameter that exists, under the job's keys."""
    settings: Overrides = {}
    for parameter in space.parameters:
        if parameter.exists(settings):
            drawn = distributions_of(parameter)
            point = {name: _suggest(trial, name, each) for name, each in drawn.items()}
            settings |= parameter.domain.settings_at(parameter.name, point)
    return settings


def _suggest(trial: optuna.Trial | _Dice, name: str, distribution: BaseDistribution) -> Any:
    if isinstance(distribution, FloatDistribution):
        return trial.suggest_float(name, distribution.low, distribution.high, log=distribution.log)
    if isinstance(distribution, IntDistribution):
        return trial.suggest_int(name, distribution.low, distribution.high)
    assert isinstance(distribution, CategoricalDistribution)
    return trial.suggest_categorical(name, distribution.choices)


def distributions(space: Space) -> dict[str, BaseDistribution]:
    """Optuna's distributions of all parameters of a space, by the names of their dimensions."""
    return {name: each for p in space.parameters for name, each in distributions_of(p).items()}


def example(space: Space, seed: int = 0) -> Overrides:
    """One draw at random, without a study."""
    return draw(space, _Dice(seed))


class _Dice:
    """Draws each dimension by itself."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def suggest_float(self, _name: str, low: float, high: float, *, log: bool = False) -> float:
        if log:
            # The exponential may round to just outside the range.
            return min(max(math.exp(self._random.uniform(math.log(low), math.log(high))), low), high)
        return self._random.uniform(low, high)

    def suggest_int(self, _name: str, low: int, high: int) -> int:
        return self._random.randint(low, high)

    def suggest_categorical(self, _name: str, choices: Any) -> Any:
        return self._random.choice(choices)
