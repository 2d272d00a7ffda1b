"""What became of a sweep, for tables and for programs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mlcl.config import Goal
from mlcl.significance.baseline_verdict import BaselineVerdict, Contender, Role, compare_baselines
from mlcl.tracking import State


@dataclass(frozen=True)
class Trained:
    """One training of a sweep: a search trial, or a seed of a confirmation.

    `score` is the pruning goal's: the final one of a COMPLETE training, else its last rung's. `values` has
    one number for each goal. `chosen` are the post-hoc keys (k, lambda, temperature) that gave the score.
    `run_id` is the run in MLflow, None where that has not been delivered yet.
    """

    key: str
    label: str
    state: State
    settings: Mapping[str, Any]
    score: float | None = None
    values: tuple[float, ...] = ()
    chosen: Mapping[str, Any] = field(default_factory=dict)
    metrics: Mapping[str, float] = field(default_factory=dict)
    reason: str = ""
    epoch: int = 0
    seconds: float = 0.0
    run_id: str | None = None


@dataclass(frozen=True)
class Confirmed:
    """A setting on fresh seeds; `label` tells which: as written, best found, or the name of a baseline."""

    key: str
    label: str
    state: State
    settings: Mapping[str, Any]
    seeds: tuple[Trained, ...]
    run_id: str | None = None
    role: Role = Role.MODEL

    def contender(self, score: str) -> Contender:
        """Its complete seeds on validation, by the score, and on test."""
        done = {place: its.metrics for place, its in enumerate(self.seeds) if its.state is State.COMPLETE}
        return Contender.of(self.label, self.role, score, done)

    def values(self, metric: str) -> list[float]:
        """The metric of every seed that has it."""
        return [seed.metrics[metric] for seed in self.seeds if metric in seed.metrics]


@dataclass(frozen=True)
class SweepReport:
    """A sweep as it stands when the command ends.

    `goals` name the metrics of `Trained.values`; `score` and `mode` are the pruning goal's. `front` is the
    Pareto front over the goals, only where there are several. `undelivered` counts logs that MLflow has not
    got yet. `baseline_trials` are those of the searches of trained baselines.
    """

    id: str
    name: str
    state: State
    reason: str
    folder: Path
    goals: tuple[Goal, ...]
    score: str
    mode: str
    trials: tuple[Trained, ...]
    best: Trained | None
    front: tuple[Trained, ...] = ()
    confirmations: tuple[Confirmed, ...] = ()
    registered: str = ""
    spent: str = ""
    undelivered: int = 0
    run_id: str | None = None
    baseline_trials: tuple[Trained, ...] = ()

    @property
    def verdict(self) -> BaselineVerdict | None:
        """Whether the best confirmed model beats the best baseline; None where one of them is missing."""
        contenders = [each.contender(self.score) for each in self.confirmations]
        return compare_baselines(contenders, f"test/{self.score.rpartition('/')[2]}", self.mode)
