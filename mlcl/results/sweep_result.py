"""The model of a sweep: what was asked, its trainings, its settings on fresh seeds, and its verdict."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Protocol, TypeVar

import numpy as np
from pydantic import Field, PlainSerializer, computed_field

from mlcl.config import MARGIN, Goal
from mlcl.results.sweep_arms import ArmResult, Number, RoleField, Verdicts, sweep_verdicts
from mlcl.significance.baseline_verdict import Role
from mlcl.tracking import State

RunId = Annotated[str | None, Field(alias="mlflow_run_id")]
"""The id of a run in MLflow, None where the run has not been delivered."""


@dataclass(frozen=True)
class TrainingResult:
    """A training: a search trial (with a `number`), a seed of a confirmed setting, or of a table's cell.

    Attributes:
        key: The training's key in its sweep or table.
        label: The name for people.
        settings: The values of the searched keys.
        score: The value of the sweep's score; the last intermediate value of a training that is not COMPLETE.
        values: The final value of each goal.
        chosen: The post-hoc keys (k, lambda, temperature) that gave the score.
        metrics: The final metrics.
        blocks: The metrics of test without each block of its rows; empty where test was not read.
        intermediate: The score's (epoch, value) at each validation.
        changes: The parameters that differ from those of the search, setting or cell, None for a lacking key.
        fingerprint: Digest of the data set with its split.
        started: Milliseconds since 1970, None where the training's log is gone.
        log: The id of its log: MLflow's run has it as the tag `mlcl.log`.
    """

    key: str
    label: str
    state: State
    settings: Mapping[str, Any] = field(default_factory=dict)
    score: float | None = None
    values: tuple[Number, ...] = ()
    chosen: Mapping[str, Any] = field(default_factory=dict)
    metrics: Mapping[str, Number] = field(default_factory=dict)
    blocks: Mapping[str, tuple[Number, ...]] = field(default_factory=dict)
    reason: str = ""
    intermediate: tuple[tuple[int, Number], ...] = ()
    number: int | None = None
    seed: int | None = None
    changes: Mapping[str, Any] = field(default_factory=dict)
    job_hash: str = ""
    fingerprint: str = ""
    started: int | None = None
    seconds: float | None = None
    cpu_seconds: float | None = None
    gpu_seconds: float | None = None
    log: str = ""
    run_id: RunId = None

    @computed_field
    @property
    def epoch(self) -> int:
        """The epoch of the last intermediate value, 0 without one."""
        return self.intermediate[-1][0] if self.intermediate else 0

    def params(self, shared: Mapping[str, Any]) -> dict[str, Any]:
        """The training's parameters, from those that it shares with others."""
        return {key: value for key, value in {**shared, **self.changes}.items() if value is not None}


def changes(shared: Mapping[str, Any], params: Mapping[str, Any]) -> dict[str, Any]:
    """The `params` that differ from the `shared` ones, and None for each key that they lack."""
    differing = {key: value for key, value in params.items() if key not in shared or shared[key] != value}
    return differing | dict.fromkeys(shared.keys() - params.keys())


@dataclass(frozen=True)
class SettingResult:
    """A setting that was trained again on fresh seeds.

    Attributes:
        name: What the setting is: a baseline's name, `as written` or `trial 3`. It does not change, and no
            two settings of a sweep share one.
        labels: The names that the setting has now, with its rank: `best found (trial 3)`. Several where it
            is a baseline, too, or the job as written. Empty where it is no candidate any more.
        role: Whether it is a model or a baseline, and of the control.
        arm: The arm whose search found it; `search` is the number of the search.
        order: Its position among the settings by the time at which they were first confirmed.
        params: The parameters of its job, without the seeds.
    """

    key: str
    labels: tuple[str, ...]
    state: State
    settings: Mapping[str, Any]
    seeds: tuple[TrainingResult, ...]
    name: str = ""
    role: RoleField = Role.MODEL
    order: int = 0
    params: Mapping[str, Any] = field(default_factory=dict)
    job_hash: str = ""
    log: str = ""
    run_id: RunId = None
    arm: str = ""
    search: int = 1

    @computed_field
    @property
    def label(self) -> str:
        """The names that it has now, in one text."""
        return " = ".join(self.labels)

    @property
    def is_fitted(self) -> bool:
        """Whether it is a baseline that is fitted, not trained: it has no embedding and no neighbours."""
        return "baseline" in self.params

    def metric_values(self, metric: str) -> list[float]:
        """The metric of every seed that has it."""
        return [seed.metrics[metric] for seed in self.seeds if metric in seed.metrics]


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
    lower_is_better: tuple[str, ...] = ()
    provenance: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    @computed_field
    @property
    def verdicts(self) -> Verdicts:
        """Heads against control, then the best model against the best baseline; see `sweep_verdicts`."""
        margin = self.job.get("evaluation", {}).get("margin", MARGIN)
        rows = self.data.test_rows if self.data else 0
        return sweep_verdicts(self.confirmations, self.score, self.mode, margin=margin, rows=rows)

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
