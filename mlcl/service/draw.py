"""From an Optuna trial to settings of a job, and back."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Protocol

from mlcl.config import Choice, Float, Int, Simplex, Space

Overrides = dict[str, Any]


class Suggests(Protocol):
    """What is used of an Optuna trial."""

    def suggest_float(self, name: str, low: float, high: float, *, log: bool = False) -> float:
        """A number."""

    def suggest_int(self, name: str, low: int, high: int) -> int:
        """A whole number."""

    def suggest_categorical(self, name: str, choices: Any) -> Any:
        """One of the choices."""


def draw(space: Space, trial: Suggests) -> Overrides:
    """One setting of every parameter, under the job's keys."""
    settings: Overrides = {}
    for parameter in space.parameters:
        domain = parameter.domain
        if isinstance(domain, Float):
            settings[parameter.name] = trial.suggest_float(
                parameter.name, domain.low, domain.high, log=domain.log
            )
        elif isinstance(domain, Int):
            settings[parameter.name] = trial.suggest_int(parameter.name, domain.low, domain.high)
        elif isinstance(domain, Choice):
            position = trial.suggest_categorical(parameter.name, tuple(range(len(domain.values))))
            settings[parameter.name] = domain.values[position]
        else:
            settings |= _draw_simplex(parameter.name, domain, trial)
    return settings


def _draw_simplex(name: str, domain: Simplex, trial: Suggests) -> Overrides:
    """Weights that are uniform on the simplex, times a total.

    Stick-breaking: with k weights, piece j takes the share Beta(1, k - 1 - j) of what remains. A uniform u
    gives it through the quantile 1 - (1 - u)^(1 / (k - 1 - j)), so nothing is ever rejected.
    """
    count = len(domain.keys)
    total = domain.low
    if domain.low < domain.high:
        total = trial.suggest_float(f"{name}.total", domain.low, domain.high)
    rest, weights = total, []
    for j in range(count - 1):
        u = trial.suggest_float(f"{name}.stick{j}", 0.0, 1.0)
        weights.append(rest * (1 - (1 - u) ** (1 / (count - 1 - j))))
        rest -= weights[-1]
    return dict(zip(domain.keys, [*weights, max(rest, 0.0)], strict=True))


def point_of(space: Space, flat_job: Mapping[str, Any]) -> dict[str, Any] | None:
    """The job's own settings as a point of the space, in Optuna's names; None where it lies outside."""
    point: dict[str, Any] = {}
    for parameter in space.parameters:
        domain = parameter.domain
        if isinstance(domain, Simplex):
            found = _simplex_point(parameter.name, domain, [flat_job[key] for key in domain.keys])
            if found is None:
                return None
            point |= found
            continue
        value = flat_job.get(parameter.name)
        if isinstance(domain, Choice):
            if value not in domain.values:
                return None
            point[parameter.name] = domain.values.index(value)
        elif isinstance(value, (int, float)) and domain.low <= value <= domain.high:
            point[parameter.name] = value
        else:
            return None
    return point


def _simplex_point(name: str, domain: Simplex, weights: list[float]) -> dict[str, float] | None:
    total = math.fsum(weights)
    if not domain.low - 1e-9 <= total <= domain.high + 1e-9 or total <= 0:
        return None
    point = {f"{name}.total": min(max(total, domain.low), domain.high)} if domain.low < domain.high else {}
    rest, count = total, len(weights)
    for j, weight in enumerate(weights[:-1]):
        share = min(1.0, weight / rest) if rest > 0 else 0.0
        point[f"{name}.stick{j}"] = 1 - (1 - share) ** (count - 1 - j)
        rest -= weight
    return point
