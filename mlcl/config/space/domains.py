"""What a parameter may be, and under which condition it exists."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from mlcl.config.space.condition import Condition


@dataclass(frozen=True)
class Float:
    """A number in [low, high], uniform or log-uniform."""

    low: float
    high: float
    log: bool = False


@dataclass(frozen=True)
class Int:
    """A whole number in [low, high]."""

    low: int
    high: int


@dataclass(frozen=True)
class Choice:
    """One of the values."""

    values: tuple[Any, ...]


@dataclass(frozen=True)
class Simplex:
    """Non-negative weights that add up to a total in [low, high], uniform on the simplex.

    One weight for each of `keys`; with `size`, a list of so many weights under the one key.
    """

    keys: tuple[str, ...]
    low: float
    high: float
    size: int | None = None

    @property
    def count(self) -> int:
        """How many weights."""
        return self.size or len(self.keys)

    def settings(self, weights: list[float]) -> dict[str, Any]:
        """The weights under the job's keys."""
        return (
            {self.keys[0]: weights} if self.size is not None else dict(zip(self.keys, weights, strict=True))
        )


Domain = Float | Int | Choice | Simplex


@dataclass(frozen=True)
class Parameter:
    """A key path of the job and what it may be; a simplex covers several keys under one name."""

    name: str
    domain: Domain
    condition: Condition | None = None

    @property
    def keys(self) -> tuple[str, ...]:
        """The keys of the job that it sets."""
        return self.domain.keys if isinstance(self.domain, Simplex) else (self.name,)

    def exists(self, settings: Mapping[str, Any]) -> bool:
        """Whether it is drawn, given the settings of the parameters before it."""
        return self.condition is None or self.condition.holds(settings)
