"""Writes the sweep's own run in MLflow: its request, the curve of the best score, and its result."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from typing import Any

import yaml

from mlcl.config import dump_job, job_hash
from mlcl.results.sweep_result import ranked
from mlcl.service.engine.closing import log_id
from mlcl.service.engine.entries import Entry
from mlcl.service.engine.ledger import Ledger
from mlcl.service.search.arms import search_plans
from mlcl.service.search.sweep_plan import SweepPlan
from mlcl.significance.roles import Role
from mlcl.store import RunRecord
from mlcl.tracking import RunLog, State
from mlcl.tracking.job_logs import JobLogs
from mlcl.tracking.names import (
    BEST_SETTINGS,
    RUNG,
    SCORE,
    SWEEP_BEST,
    SWEEP_MODE,
    SWEEP_SCORE,
    Tag,
    count_tag,
    space_file,
)
from mlcl.tracking.provenance import submitted_tags
from mlcl.tracking.shared_view import trials_view
from mlcl.training.run_files import JOB


class SweepRun:
    """Writes the log of a sweep, which all of its commands share."""

    def __init__(self, plan: SweepPlan, record: RunRecord, ledger: Ledger, logs: JobLogs) -> None:
        self._plan, self._ledger, self._logs = plan, ledger, logs
        self._scopes = [its.scope for its in search_plans(plan) if its.role is Role.MODEL]
        params = {SWEEP_SCORE: plan.score, SWEEP_MODE: plan.space.mode}
        tags: dict[str, str] = {Tag.JOB_HASH: job_hash(plan.job), Tag.FINGERPRINT: record.fingerprint}
        self.log = logs.start_group("sweep", record, params, tags)

    def log_request(self) -> None:
        """Logs options, job and space (by version) of this command in place of an earlier command's."""
        plan, budget, version = self._plan, self._plan.resources.budget, self._ledger.versions()[-1].number
        goals = zip(plan.scores, plan.space.goals, strict=True)
        self.log.tags(
            {
                Tag.SWEEP_TRIALS: str(plan.trials),
                Tag.SWEEP_SEEDS: str(plan.seeds),
                Tag.SWEEP_CONFIRM: str(plan.confirm),
                Tag.SWEEP_GENERATION: str(version),
                Tag.SWEEP_BUDGET: "" if budget is None else budget.text,
                Tag.SWEEP_GOALS: json.dumps([(name, goal.mode) for name, goal in goals]),
                Tag.SWEEP_VERDICT: "",  # until this command has concluded
                **submitted_tags(),
            }
        )
        self.log.params(plan.shared_params())
        self.log.text(yaml.safe_dump(dump_job(plan.job), sort_keys=False), JOB)
        self.log.text(plan.space_text, space_file(version))
        self._view(None)

    def _view(self, metric: str | None) -> None:
        plan, id = self._plan, self.log.id
        space, keys = plan.space, [*plan.searched, *plan.free]
        self.log.view(id, trials_view(id, keys, space.metric, space.mode, metric))

    def _counted(self) -> list[Entry]:
        """Returns the comparable trials of the swept job's searches, see `Ledger.counted`."""
        return [trial for scope in self._scopes for trial in self._ledger.counted(scope)]

    @property
    def best(self) -> Entry | None:
        """The best complete trial of the swept job so far."""
        return next(iter(ranked(self._counted(), self._plan.space.mode)), None)

    def _ended(self) -> int:
        return sum(trial.ended for scope in self._scopes for trial in self._ledger.trials(scope=scope))

    def log_intermediate(self) -> None:
        """Logs each trial's value at the last epoch that all trials have reached, if some were pruned."""
        ended = [each for each in self._counted() if each.state in (State.COMPLETE, State.PRUNED)]
        epochs = set.intersection(*(set(dict(each.intermediate)) for each in ended)) if ended else set()
        if not epochs or all(each.state is State.COMPLETE for each in ended):
            return
        last = max(epochs)
        name = f"{RUNG}{last}/{self._plan.space.metric.rpartition('/')[2]}"
        for each in ended:
            log = RunLog.attach(self._logs.home, log_id(self.log.id, each.key))
            log.metrics({name: dict(each.intermediate)[last]}, step=0)
            self._logs.deliver(log.id)
        self._view(name)

    def curve(self) -> None:
        """Logs the best score after each ended trial; steps go on after the space has changed."""
        best: float | None = None
        better = max if self._plan.space.mode == "max" else min
        counted = {entry.key for entry in self._counted()}
        ledger = self._ledger
        closed = [ledger.entries[key] for event, key, _ in ledger.history if event == "close"]
        own = (each for each in closed if each.number is not None and each.scope in self._scopes)
        for step, entry in enumerate(own, start=1):
            if entry.key in counted and entry.state is State.COMPLETE and entry.score is not None:
                best = entry.score if best is None else better(best, entry.score)
            if best is not None:
                self.log.metrics({SWEEP_BEST: best}, step)

    def point(self) -> None:
        """Logs the last point of the curve: the best score so far, at the number of ended trials."""
        ended, best = self._ended(), self.best
        if best is not None and best.score is not None and ended:
            self.log.metrics({SWEEP_BEST: best.score}, ended)

    def conclude(self, *, run_id: str | None, spent: str, verdict: str) -> None:
        """Logs the counts of trials by state, the used time, the verdict, and the best trial's metrics."""
        trials, best = self._counted(), self.best
        # Tags, for a later command's counts replace these.
        counts = Counter(trial.state for trial in trials)
        self.log.tags({count_tag(state): str(counts[state]) for state in State})
        self.log.tags({Tag.SWEEP_SPENT: spent, Tag.SWEEP_VERDICT: verdict})
        metrics: dict[str, float] = {}
        if best is not None:
            metrics |= {**best.metrics, SCORE: best.score or 0.0}
            settings: Mapping[str, Any] = {**best.settings, **best.chosen}
            self.log.tags({Tag.BEST: best.label, **({Tag.BEST_RUN_ID: run_id} if run_id else {})})
            self.log.text(json.dumps(settings, indent=2), BEST_SETTINGS)
        self.log.metrics(metrics, step=self._ended())
