"""A checked space and its parameters."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mlcl.config.space.condition import Condition
from mlcl.config.space.domain import Domain
from mlcl.config.space.search import Goal, Mode, SearchConfig


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


@dataclass(frozen=True)
class Space:
    """What is searched, the post-hoc grid, and how to search.

    A parameter comes after those that its condition asks for. `prune_by` is the goal that trials stop early
    by: the only one, where there is only one.
    """

    parameters: tuple[Parameter, ...]
    posthoc: Mapping[str, tuple[Any, ...]]
    search: SearchConfig
    goals: tuple[Goal, ...]
    prune_by: Goal
    file: Path | None = None

    @property
    def metric(self) -> str:
        """The metric that trials stop early by."""
        return self.prune_by.metric

    @property
    def mode(self) -> Mode:
        """Whether more or less of `metric` is better."""
        return self.prune_by.mode

    @property
    def multi(self) -> bool:
        """Whether there are several goals, and so a Pareto front instead of one best trial."""
        return len(self.goals) > 1
