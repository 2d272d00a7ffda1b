"""The dataclasses of a sweep's result: the request, its trainings, its confirmed settings, its verdicts."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Protocol, TypeVar

import numpy as np
from pydantic import PlainSerializer, computed_field

from mlcl.config import Goal, flatten
from mlcl.results.compared_setting import margin_of
from mlcl.results.sweep_arms import ArmResult, Verdicts, best_seed, best_setting, sweep_verdicts
from mlcl.results.training_result import RunId, SettingResult, TrainingResult
from mlcl.significance.roles import Role
from mlcl.significance.verdict import Conclusion
from mlcl.tracking import State


@dataclass(frozen=True)
class SweepRequest:
    """The amounts of work that the last command on a sweep asked for.

    Attributes:
        trials: The number of search trials of each arm.
        seeds: The number of fresh seeds of each arm.
        confirm: The number of settings that enter the race, or that are confirmed if there is no race.
        searches: The number of searches of each arm.
        budget: The budget as the user typed it, empty for none.
    """

    trials: int
    seeds: int
    confirm: int
    budget: str = ""
    searches: int = 1


@dataclass(frozen=True)
class DataSummary:
    """A data set: its name, the digest of its content and split, notes of its preparation.

    `test_rows` is the number of test rows, 0 if unknown.
    """

    name: str
    fingerprint: str
    notes: tuple[str, ...] = ()
    test_rows: int = 0


@dataclass(frozen=True)
class SweepResult:
    """The result of a sweep, finished or not.

    Attributes:
        id: The sweep's id, which is also the name of its folder.
        name: The name that the user gave it.
        reason: Why it has its state; empty for none.
        registered: The line for the user on the registered model that the sweep made; empty for none.
        spent: The part of the budget that was used, in words.
        goals: The metrics whose final values each training has in its `values`, with their modes.
        score: The metric that ranks trials and prunes them; `mode` is max or min.
        fresh_score: The validation metric that ranks settings on fresh seeds: `score`, or `knn/val/...` if
            races chose the k-NN parameters, or else `ensemble/val/...` for a job with an ensemble. Verdicts
            compare the same metric on the test split.
        trials: The search trials that fit the latest space, ordered by number.
        dropped: Search trials that do not fit the latest space.
        baseline_trials: The search trials of the baselines that the last command named.
        earlier_baseline_trials: The search trials of baselines that only earlier commands named.
        arms: The arms of the last command, with their searches and races.
        race_trainings: The trainings of all races.
        confirmations: The settings that the last command confirmed on fresh seeds.
        earlier: Settings that earlier commands confirmed.
        job: The job as written.
        params: The parameters of the job from which trials start.
        space: The text of the latest space file.
        free: The post-hoc keys (k, lambda, temperature) that each training chooses for itself.
        lower_is_better: Patterns of the metrics that are better where lower.
        provenance: The code, libraries and data of the sweep and its trainings, keyed by a title.
        undelivered: The number of logs that have not reached MLflow yet.

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

    @property
    def raced_neighbours(self) -> bool:
        """Whether races, and not the single trials, chose k, lambda and temperature."""
        return self.fresh_score.startswith("knn/") and self.fresh_score != self.score

    @property
    def given_arms(self) -> frozenset[str]:
        """The names of the arms whose only trial is the job as written, so that no search chose a setting."""
        # Results of an earlier mlcl have no `tried`.
        return frozenset(
            arm.name
            for arm in self.arms
            if all(max(search.tried, search.trials) < 2 for search in arm.searches)
        )

    @computed_field
    @property
    def verdicts(self) -> Verdicts:
        """Verdicts on heads against control and best model against best baseline, see `sweep_verdicts`."""
        score, mode = self.fresh_score, self.mode
        margin = margin_of(flatten(self.job), score.replace("val/", "test/"))
        rows, given_arms = self.data.test_rows if self.data else 0, self.given_arms
        return sweep_verdicts(self.confirmations, score, mode, margin=margin, rows=rows, given=given_arms)

    @computed_field
    @property
    def best(self) -> Annotated[TrainingResult | None, PlainSerializer(lambda trial: trial and trial.label)]:
        """The complete trial with the best score; None if no trial is complete."""
        return next(iter(rank_trials(self.trials, self.mode)), None)

    @property
    def recommended(self) -> SettingResult | None:
        """The best model, or the control or baseline that a verdict calls better; None without seeds."""
        better = {verdict.reference.label for verdict in self.verdicts if verdict.answer is Conclusion.HURTS}
        candidates = [
            setting for setting in self.confirmations if not better or better & {setting.arm, setting.name}
        ]
        role = Role.BASELINE if better else Role.MODEL
        return best_setting(candidates, self.fresh_score, self.mode, role=role)

    @property
    def best_training(self) -> TrainingResult | None:
        """The best seed, on validation, of `recommended`; without fresh seeds the best trial, or None."""
        setting = self.recommended
        return self.best if setting is None else best_seed(setting, self.fresh_score, self.mode)

    @computed_field
    @property
    def front(
        self,
    ) -> Annotated[list[TrainingResult], PlainSerializer(lambda front: [t.label for t in front])]:
        """The trials on the Pareto front over the goals; empty for a single goal."""
        return pareto(self.trials, self.goals) if len(self.goals) > 1 else []

    @property
    def all_trials(self) -> list[TrainingResult]:
        """All search trials, including those that do not fit the latest space and those of baselines."""
        return [*self.trials, *self.dropped, *self.baseline_trials, *self.earlier_baseline_trials]

    @property
    def settings(self) -> list[SettingResult]:
        """All settings with fresh seeds: trained baselines, then models, then fitted baselines.

        Within each group they are in order of confirmation. The first one is the reference of comparisons.
        """
        settings = [*self.confirmations, *self.earlier]
        return sorted(
            settings,
            key=lambda setting: (setting.is_fitted, Role.BASELINE not in setting.role, setting.order),
        )


class Scored(Protocol):
    """A training that `rank_trials` and `pareto` can compare."""

    @property
    def state(self) -> State:
        """The state of the training."""

    @property
    def score(self) -> float | None:
        """The value by which the training is ranked; None if it has none."""

    @property
    def values(self) -> Sequence[float]:
        """The final value of each goal."""


ScoredT = TypeVar("ScoredT", bound=Scored)


def rank_trials(trials: Sequence[ScoredT], mode: str) -> list[ScoredT]:
    """Returns the complete trials ordered by score, best first; trials with equal scores keep their order."""
    return sorted(filter(is_ranked, trials), key=rank_key(mode))


def is_ranked(trial: Scored) -> bool:
    """Whether a trial is complete and has a score."""
    return trial.state is State.COMPLETE and trial.score is not None


def rank_key(mode: str) -> Callable[[Scored], float]:
    """Returns the key by which `rank_trials` sorts."""
    sign = -1.0 if mode == "max" else 1.0
    return lambda trial: sign * (trial.score or 0.0)


def pareto(trials: Sequence[ScoredT], goals: Sequence[Goal]) -> list[ScoredT]:
    """Returns the Pareto front: the complete trials that no other trial dominates.

    A trial dominates another if it is at least as good in every goal and better in one.
    """
    complete = [
        trial for trial in trials if trial.state is State.COMPLETE and len(trial.values) == len(goals)
    ]
    signs = np.array([-1.0 if goal.mode == "max" else 1.0 for goal in goals])
    costs_TG = np.array([trial.values for trial in complete]).reshape(-1, len(goals)) * signs
    beaten = [
        ((costs_TG <= cost_G).all(axis=1) & (costs_TG < cost_G).any(axis=1)).any() for cost_G in costs_TG
    ]
    return [trial for trial, is_beaten in zip(complete, beaten, strict=True) if not is_beaten]
