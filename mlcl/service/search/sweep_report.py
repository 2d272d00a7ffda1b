"""The report of a sweep, from its ledger."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from mlcl.config import Goal
from mlcl.service.engine.entries import Entry
from mlcl.service.engine.ledger import Ledger
from mlcl.service.engine.nested_trials import log_id
from mlcl.service.search.baseline_search import baseline_searches, scope_of
from mlcl.service.search.confirmation import Candidate, pareto, ranked
from mlcl.service.search.summary import Confirmed, SweepReport, Trained
from mlcl.service.search.sweep_plan import SweepPlan
from mlcl.tracking import State


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
