"""What became of a sweep, read from its ledger, for tables and for programs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mlcl.config import Goal
from mlcl.service.engine.entries import Entry
from mlcl.service.engine.ledger import Ledger
from mlcl.service.engine.nested_trials import log_id
from mlcl.service.search.confirmation import Candidate, pareto, ranked
from mlcl.service.search.sweep_plan import SweepPlan, baseline_searches, scope_of
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


@dataclass(frozen=True)
class SweepReader:
    """Reads a sweep's ledger; `run_id` tells the MLflow run of a log."""

    plan: SweepPlan
    folder: Path
    ledger: Ledger
    run_id: Callable[[str], str | None]

    def report(
        self,
        state: State,
        reason: str,
        confirmed: Sequence[Candidate],
        *,
        spent: str,
        undelivered: int,
    ) -> SweepReport:
        """The sweep as it stands."""
        plan, id = self.plan, self.ledger.head["id"]
        trials = self.ledger.counted()
        complete = ranked(trials, plan.space.mode)
        front = pareto(trials, plan.space.goals) if plan.space.multi else []
        return SweepReport(
            id=id,
            name=plan.name,
            state=state,
            reason=reason,
            folder=self.folder,
            goals=tuple(
                Goal(name, goal.mode) for name, goal in zip(plan.scores, plan.space.goals, strict=True)
            ),
            score=plan.score,
            mode=plan.space.mode,
            trials=tuple(map(self._trained, trials)),
            best=self._trained(complete[0]) if complete else None,
            front=tuple(map(self._trained, front)),
            confirmations=tuple(map(self._confirmed, confirmed)),
            registered=self.ledger.registered.get(complete[0].key, "") if complete else "",
            spent=spent,
            undelivered=undelivered,
            run_id=self.run_id(id),
            baseline_trials=tuple(
                self._trained(entry)
                for search in baseline_searches(plan).values()
                for entry in self.ledger.counted(scope_of(search))
            ),
        )

    def _confirmed(self, candidate: Candidate) -> Confirmed:
        seeds = tuple(map(self._trained, self.ledger.seeds_of(candidate.key)))
        state, _ = self.ledger.group_states[candidate.key]
        run_id = self._run_id(candidate.key)
        return Confirmed(
            candidate.key, candidate.label, state, candidate.settings, seeds, run_id, candidate.role
        )

    def _trained(self, entry: Entry) -> Trained:
        return Trained(
            key=entry.key,
            label=entry.label,
            state=entry.state,
            settings=entry.settings,
            score=entry.score,
            values=tuple(entry.values),
            chosen=entry.chosen,
            metrics=entry.metrics,
            reason=entry.reason,
            epoch=entry.rungs[-1][0] if entry.rungs else 0,
            seconds=entry.cost.seconds,
            run_id=self._run_id(entry.key),
        )

    def _run_id(self, key: str) -> str | None:
        return self.run_id(log_id(self.ledger.head["id"], key))
