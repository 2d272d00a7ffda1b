"""A parameter of a space: a key path of the job and what it may be."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from mlcl.config.space.condition import Condition
from mlcl.config.space.domain import Domain


@dataclass(frozen=True)
class Parameter:
    """A key path of the job and what it may be; a simplex covers several keys under one name."""

    name: str
    domain: Domain
    condition: Condition | None = None

    @property
    def keys(self) -> tuple[str, ...]:
        """The keys of the job that it sets."""
        return self.domain.keys_of(self.name)

    def exists(self, settings: Mapping[str, Any]) -> bool:
        """Whether it is drawn, given the settings of the parameters before it."""
        return self.condition is None or self.condition.holds(settings)
