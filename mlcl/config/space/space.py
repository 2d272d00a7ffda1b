"""A checked space."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mlcl.config.space.parameter import Parameter
from mlcl.config.space.search import Goal, Mode, SearchConfig


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
