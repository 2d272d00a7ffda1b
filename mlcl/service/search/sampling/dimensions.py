"""What a space draws, in Optuna's terms."""

from __future__ import annotations

from optuna.distributions import (
    BaseDistribution,
    CategoricalDistribution,
    FloatDistribution,
    IntDistribution,
)

from mlcl.config.space import Dimension, Parameter


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
