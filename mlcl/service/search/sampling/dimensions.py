"""A parameter in Optuna's terms: its dimensions, and the settings that a point of them stands for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from optuna.distributions import (
    BaseDistribution,
    CategoricalDistribution,
    FloatDistribution,
    IntDistribution,
)

from mlcl.config import Choice, Float, Int, Parameter, Simplex
from mlcl.service.search.sampling import simplex

Overrides = dict[str, Any]


def dimensions(parameter: Parameter) -> dict[str, BaseDistribution]:
    """The dimensions by their names.

    A choice is drawn by position, since its values may be of any type. Weights are drawn as the sticks that
    they are broken from, and their total where it is a range.
    """
    name, domain = parameter.name, parameter.domain
    if isinstance(domain, Float):
        return {name: FloatDistribution(domain.low, domain.high, log=domain.log)}
    if isinstance(domain, Int):
        return {name: IntDistribution(domain.low, domain.high)}
    if isinstance(domain, Choice):
        return {name: CategoricalDistribution(range(len(domain.values)))}
    found: dict[str, BaseDistribution] = {stick: FloatDistribution(0.0, 1.0) for stick in sticks(parameter)}
    if domain.low < domain.high:
        found = {total(parameter): FloatDistribution(domain.low, domain.high), **found}
    return found


def settings_at(parameter: Parameter, point: Mapping[str, Any]) -> Overrides:
    """What the job's keys are where the parameter's dimensions are at this point."""
    domain = parameter.domain
    if isinstance(domain, Simplex):
        whole = point.get(total(parameter), domain.low)
        return domain.settings(simplex.weights(whole, [point[stick] for stick in sticks(parameter)]))
    value = point[parameter.name]
    return {parameter.name: domain.values[value] if isinstance(domain, Choice) else value}


def total(parameter: Parameter) -> str:
    """The name of the dimension that is the weights' sum."""
    return f"{parameter.name}.total"


def sticks(parameter: Parameter) -> list[str]:
    """The names of the dimensions that weights are broken from, one fewer than there are weights."""
    assert isinstance(parameter.domain, Simplex)
    return [f"{parameter.name}.stick{j}" for j in range(parameter.domain.count - 1)]
