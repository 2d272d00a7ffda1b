"""The model of a sweep: what was asked, its trainings, its settings on fresh seeds, and its verdict."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Protocol, TypeVar

import numpy as np
from pydantic import PlainSerializer, computed_field

from mlcl.config import MARGIN, Goal
from mlcl.results.sweep_arms import ArmResult, Verdicts, sweep_verdicts
from mlcl.results.training_result import RunId, SettingResult, TrainingResult
from mlcl.significance.roles import Role
from mlcl.tracking import State


@dataclass(frozen=True)
class SweepRequest:
    """The amounts that the last command on a sweep asked for.

    Attributes:
        trials: The number of search trials of each arm.
        seeds: The number of fresh seeds of each arm.
        confirm: The number of settings that race, or are confirmed without a race.
        searches: The number of searches of each arm.
        budget: The budget as it was typed, empty for none.
    """

    trials: int
    seeds: int
    confirm: int
    budget: str = ""
    searches: int = 1


@dataclass(frozen=True)
class DataSummary:
    """A data set: its name, the digest of its content and split, the notes of its preparation, its test rows.

    Without a known number, `test_rows` is 0.
    """

    name: str
    fingerprint: str
    notes: tuple[str, ...] = ()
    test_rows: int = 0


@dataclass(frozen=True)
class SweepResult:
    """A sweep as it stands.

    Attributes:
        goals: The metrics of each training's `values`.
        score: The metric that ranks trials and prunes them; `mode` is max or min.
        fresh_score: The metric of validation that ranks settings on fresh seeds: `score`, or `knn/val/...`
            where races chose the neighbours. Verdicts are by its value on test.
        trials: The search trials that compare in the latest space, in order.
        dropped: Search trials that do not fit the latest space.
        baseline_trials: The trials of the searches of the baselines that the last command named.
        earlier_baseline_trials: The trials of the searches of other baselines.
        arms: The arms of the last command, with their searches and races.
        race_trainings: The trainings of all races.
        confirmations: The settings that the last command confirmed on fresh seeds.
        earlier: Settings that earlier commands confirmed.
        job: The job as written.
        params: The parameters of the job that trials start from.
        space: The text of the latest space file.
        free: The post-hoc keys that each training chooses for itself.
        lower_is_better: Patterns of metrics that are better where they are lower.
        provenance: Code, libraries and data, of the sweep and all of its trainings, by title.
        undelivered: How many logs MLflow has not got yet.

    Example:
        >>> sweep = read_sweep(runs, runs.require_group("my-sweep"))
        >>> {setting.name: setting.metric_values("test/accuracy") for setting in sweep.settings}
        {'as written': [0.81, 0.82], 'trial 3': [0.86, 0.85]}
    """

    id: str
    name: str
    state: State
    reason: str
    folder: Path
    goals: tuple[Goal, ...]
    score: str
    mode: str
    trials: tuple[TrainingResult, ...]
    confirmations: tuple[SettingResult, ...] = ()
    registered: str = ""
    spent: str = ""
    undelivered: int = 0
    run_id: RunId = None
    baseline_trials: tuple[TrainingResult, ...] = ()
    earlier_baseline_trials: tuple[TrainingResult, ...] = ()
    dropped: tuple[TrainingResult, ...] = ()
    arms: tuple[ArmResult, ...] = ()
    race_trainings: tuple[TrainingResult, ...] = ()
    earlier: tuple[SettingResult, ...] = ()
    asked: SweepRequest | None = None
    data: DataSummary | None = None
    job: Mapping[str, Any] = field(default_factory=dict)
    params: Mapping[str, Any] = field(default_factory=dict)
    space: str = ""
    free: tuple[str, ...] = ()
    fresh_score: str = ""
    lower_is_better: tuple[str, ...] = ()
    provenance: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not self.fresh_score:
            object.__setattr__(self, "fresh_score", self.score)

    @computed_field
    @property
    def verdicts(self) -> Verdicts:
        """Heads against control, then the best model against the best baseline; see `sweep_verdicts`."""
        margin = self.job.get("evaluation", {}).get("margin", MARGIN)
        rows = self.data.test_rows if self.data else 0
        return sweep_verdicts(self.confirmations, self.fresh_score, self.mode, margin=margin, rows=rows)

    @computed_field
    @property
    def best(self) -> Annotated[TrainingResult | None, PlainSerializer(lambda trial: trial and trial.label)]:
        """The best complete trial; None for none."""
        return next(iter(ranked(self.trials, self.mode)), None)

    @computed_field
    @property
    def front(self) -> Annotated[list[TrainingResult], PlainSerializer(lambda its: [t.label for t in its])]:
        """The trials on the Pareto front over the goals; empty for a single goal."""
        return pareto(self.trials, self.goals) if len(self.goals) > 1 else []

    @property
    def all_trials(self) -> list[TrainingResult]:
        """All search trials, also those that do not compare in the latest space, and those of baselines."""
        return [*self.trials, *self.dropped, *self.baseline_trials, *self.earlier_baseline_trials]

    @property
    def settings(self) -> list[SettingResult]:
        """All settings with fresh seeds: trained baselines, models, fitted baselines, each by their order.

        The first one is the reference of comparisons.
        """
        found = [*self.confirmations, *self.earlier]
        return sorted(found, key=lambda its: (its.is_fitted, Role.BASELINE not in its.role, its.order))


class Scored(Protocol):
    """A training with what ranks it."""

    @property
    def state(self) -> State:
        """The state of the training."""

    @property
    def score(self) -> float | None:
        """The value that ranks it."""

    @property
    def values(self) -> Sequence[float]:
        """The final value of each goal."""


ScoredT = TypeVar("ScoredT", bound=Scored)


def ranked(trials: Sequence[ScoredT], mode: str) -> list[ScoredT]:
    """The complete trials, the best score first, the earliest of equals."""
    complete = [trial for trial in trials if trial.state is State.COMPLETE and trial.score is not None]
    sign = -1.0 if mode == "max" else 1.0
    return sorted(complete, key=lambda trial: sign * (trial.score or 0.0))


def pareto(trials: Sequence[ScoredT], goals: Sequence[Goal]) -> list[ScoredT]:
    """The complete trials that no other one beats in a goal without losing in another."""
    complete = [each for each in trials if each.state is State.COMPLETE and len(each.values) == len(goals)]
    signs = np.array([-1.0 if goal.mode == "max" else 1.0 for goal in goals])
    costs_TG = np.array([trial.values for trial in complete]).reshape(-1, len(goals)) * signs
    front = []
    for trial, cost_G in zip(complete, costs_TG, strict=True):
        dominates = (costs_TG <= cost_G).all(axis=1) & (costs_TG < cost_G).any(axis=1)
        if not dominates.any():
            front.append(trial)
    return front
