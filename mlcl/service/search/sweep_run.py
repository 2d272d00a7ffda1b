"""Builds the result of a sweep from its ledger, and writes the log of the sweep's own MLflow run."""

from __future__ import annotations

import json
import re
import time
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from mlcl.config import Goal, dump_job, job_hash, job_yaml
from mlcl.results.documents import write_result
from mlcl.results.provenance import Tags, data_notes, lower_is_better, provenance_of
from mlcl.results.sweep_arms import ArmResult
from mlcl.results.sweep_result import DataSummary, SweepRequest, SweepResult, ranked
from mlcl.results.training_result import SettingResult, TrainingResult
from mlcl.service.engine.closing import log_id
from mlcl.service.engine.entries import Confirmation, Entry
from mlcl.service.engine.ledger import Ledger
from mlcl.service.engine.progress import ProgressEvent, ProgressListener
from mlcl.service.engine.training_results import TrainingResults
from mlcl.service.search.arms import search_plans
from mlcl.service.search.confirmation import AS_WRITTEN
from mlcl.service.search.sweep_plan import SweepPlan
from mlcl.significance.roles import Role
from mlcl.store import RunRecord
from mlcl.tracking import RunLog, State, typed_params
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
    """Writes the log of a sweep, to which all commands of the sweep write."""

    def __init__(self, plan: SweepPlan, record: RunRecord, ledger: Ledger, logs: JobLogs) -> None:
        self._plan, self._ledger, self._logs = plan, ledger, logs
        self._scopes = [its.scope for its in search_plans(plan) if its.role is Role.MODEL]
        params = {SWEEP_SCORE: plan.score, SWEEP_MODE: plan.space.mode}
        tags: dict[str, str] = {Tag.JOB_HASH: job_hash(plan.job), Tag.FINGERPRINT: record.fingerprint}
        self.log = logs.start_group("sweep", record, params, tags)

    def log_request(self) -> None:
        """Logs options, job and space of this command; options and job replace those of an earlier one."""
        plan, budget, version = self._plan, self._plan.resources.budget, self._ledger.versions()[-1].number
        goals = zip(plan.scores, plan.space.goals, strict=True)
        self.log.log_tags(
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
        self.log.log_params(plan.shared_params())
        self.log.log_text(job_yaml(plan.job), JOB)
        self.log.log_text(plan.space_text, space_file(version))
        self._view(None)

    def _view(self, metric: str | None) -> None:
        plan, id = self._plan, self.log.id
        space, keys = plan.space, [*plan.searched, *plan.free]
        self.log.log_view(id, trials_view(id, keys, space.metric, space.mode, metric))

    def _counted(self) -> list[Entry]:
        """Returns the comparable trials of the swept job's searches, see `Ledger.counted`."""
        return [trial for scope in self._scopes for trial in self._ledger.counted(scope)]

    @property
    def best(self) -> Entry | None:
        """The best complete trial of the swept job so far."""
        mode = self._plan.space.mode
        best = [each for scope in self._scopes for each in self._ledger.ranked(scope, mode)[:1]]
        return next(iter(ranked(best, mode)), None)

    def _ended(self) -> int:
        ledger = self._ledger
        return sum(ledger.trial_count(scope=its) - ledger.left_count(scope=its) for its in self._scopes)

    def log_intermediate(self) -> None:
        """Logs the value of each ended trial at the last epoch that all reported, if a trial was pruned."""
        counted = [each for each in self._counted() if each.intermediate]  # a repeated trial has none
        ended = [each for each in counted if each.state in (State.COMPLETE, State.PRUNED)]
        epochs = set.intersection(*(set(dict(each.intermediate)) for each in ended)) if ended else set()
        if not epochs or all(each.state is State.COMPLETE for each in ended):
            return
        last = max(epochs)
        name = f"{RUNG}{last}/{self._plan.space.metric.rpartition('/')[2]}"
        for each in ended:
            log = RunLog.attach(self._logs.home, log_id(self.log.id, each.key))
            log.log_metrics({name: dict(each.intermediate)[last]}, step=0)
            self._logs.deliver(log.id)
        self._view(name)

    def log_curve(self) -> None:
        """Logs the best score so far, in the present space, at the number of each ended trial as the step."""
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
                self.log.log_metrics({SWEEP_BEST: best}, step)

    def log_last_point(self) -> None:
        """Logs the last point of the curve: the best score so far, at the number of ended trials."""
        ended, best = self._ended(), self.best
        if best is not None and best.score is not None and ended:
            self.log.log_metrics({SWEEP_BEST: best.score}, ended)

    def conclude(self, *, run_id: str | None, spent: str, verdict: str) -> None:
        """Logs the counts of trials by state, the used time, the verdict, and the best trial's metrics."""
        trials, best = self._counted(), self.best
        # As tags and not as metrics, since the counts of a later command replace them.
        counts = Counter(trial.state for trial in trials)
        self.log.log_tags({count_tag(state): str(counts[state]) for state in State})
        self.log.log_tags({Tag.SWEEP_SPENT: spent, Tag.SWEEP_VERDICT: verdict})
        metrics: dict[str, float] = {}
        if best is not None:
            metrics |= {**best.metrics, SCORE: best.score or 0.0}
            settings: Mapping[str, Any] = {**best.settings, **best.chosen}
            self.log.log_tags({Tag.BEST: best.label, **({Tag.BEST_RUN_ID: run_id} if run_id else {})})
            self.log.log_text(json.dumps(settings, indent=2), BEST_SETTINGS)
        self.log.log_final_metrics(metrics, step=self._ended())


LATER_SEARCH = re.compile(r"search_\d+-[0-9a-f]{8}")
"""The scope of a search of the swept job after the first one, see `arm_search`."""
WRITE_EVERY, WRITE_SHARE = 10.0, 50
"""The least pause between writes of `sweep.json`: in seconds, and as a multiple of a write's duration."""


class SweepReader:
    """Builds the result of a sweep from its ledger and logs; `run_id` returns the MLflow run of a log."""

    def __init__(
        self,
        plan: SweepPlan,
        ledger: Ledger,
        home: Path,
        run_id: Callable[[str], str | None],
        test_rows: int = 0,
    ) -> None:
        self._plan, self._ledger, self._id = plan, ledger, ledger.head["id"]
        self._searches, self._test_rows = search_plans(plan), test_rows
        self._trainings = TrainingResults(home, run_id)
        self._params = typed_params(plan.search_job(), plan.free)

    def result(
        self,
        state: State,
        reason: str,
        confirmed: Collection[str] = (),
        *,
        arms: tuple[ArmResult, ...] = (),
        model: str = "",
        spent: str = "",
        undelivered: int = 0,
    ) -> SweepResult:
        """Returns the result of the sweep so far; other arguments become its fields of the same name.

        `confirmed` are the keys of the settings that this command confirmed, and `model` is the key of the
        training whose model is registered.
        """
        plan, ledger = self._plan, self._ledger
        counted, baselines = self._counted(model=True), self._counted(model=False)
        own = self._own_scopes()
        kept = {entry.key for entry in (*counted, *baselines)}
        raced = [key for key, each in ledger.confirmations.items() if each.race]
        trials = [each for each in ledger.entries.values() if each.number is not None]
        settings = self._settings()
        tags = [self._trainings.tags(log_id(self._id, key)) for key in ledger.entries]
        mine = {**self._trainings.tags(self._id), **ledger.code_tags}
        return SweepResult(
            id=self._id,
            name=plan.name,
            state=state,
            reason=reason,
            folder=ledger.folder,
            goals=tuple(map(Goal, plan.scores, (goal.mode for goal in plan.space.goals))),
            score=plan.score,
            fresh_score=plan.fresh_score,
            mode=plan.space.mode,
            trials=self._built(counted),
            confirmations=tuple(settings[key] for key in confirmed),
            registered=ledger.registered.get(model, ""),
            spent=spent,
            undelivered=undelivered,
            run_id=self._trainings.run_id(self._id),
            baseline_trials=self._built(baselines),
            earlier_baseline_trials=self._built(
                [entry for entry in trials if entry.scope not in own and entry.key not in kept]
            ),
            dropped=self._built([entry for entry in trials if entry.scope in own and entry.key not in kept]),
            earlier=tuple(each for key, each in settings.items() if key not in confirmed),
            arms=arms,
            race_trainings=self._built([seed for key in raced for seed in ledger.seeds_of(key)]),
            asked=self._asked(),
            data=self._data(mine, tags),
            job=dump_job(plan.job),
            params=self._params,
            space=plan.space_text,
            free=plan.free,
            lower_is_better=lower_is_better(tags),
            provenance=provenance_of(mine, tags),
        )

    def _own_scopes(self) -> set[str]:
        """Returns the scopes of the swept job's searches, with those that only earlier commands had."""
        others = {each.scope for each in self._searches if each.role is not Role.MODEL}
        earlier = set(filter(LATER_SEARCH.fullmatch, self._ledger.searches)) - others
        return earlier | {each.scope for each in self._searches if each.role is Role.MODEL}

    def _asked(self) -> SweepRequest:
        plan, budget = self._plan, self._plan.resources.budget
        return SweepRequest(
            plan.trials, plan.seeds, plan.confirm, budget.text if budget else "", plan.searches
        )

    def _counted(self, *, model: bool) -> list[Entry]:
        """Returns the comparable trials of the swept job's searches (`model`), or of all other searches."""
        scopes = [each.scope for each in self._searches if (each.role is Role.MODEL) == model]
        return [entry for scope in scopes for entry in self._ledger.counted(scope)]

    def _data(self, own: Tags, tags: Sequence[Tags]) -> DataSummary:
        return DataSummary(
            name=next(iter(tags), own).get(Tag.DATA, ""),
            fingerprint=own.get(Tag.FINGERPRINT, ""),
            notes=tuple(note for notes in data_notes(tags).values() for note in notes),
            test_rows=self._test_rows,
        )

    def _built(
        self, entries: Collection[Entry], params: Mapping[str, Any] | None = None
    ) -> tuple[TrainingResult, ...]:
        build, free = self._trainings.build, self._plan.free
        shared = self._params if params is None else params
        return tuple(build(entry, log_id(self._id, entry.key), shared, free) for entry in entries)

    def _settings(self) -> dict[str, SettingResult]:
        """Returns the confirmed settings by key; equal names get the suffix `, baseline` or a number."""
        models = {AS_WRITTEN, *(trial.label for trial in self._ledger.trials())}
        confirmations = [each for each in self._ledger.confirmations.values() if not each.race]
        used, found = Counter[str](), {}
        for order, confirmation in enumerate(confirmations):
            its, name = self._setting(confirmation, order), confirmation.label
            name += ", baseline" if its.role == Role.BASELINE and name in models else ""
            used[name] += 1
            name += f" ({used[name]})" if used[name] > 1 else ""
            found[confirmation.key] = replace(its, name=name)
        return found

    def _setting(self, confirmation: Confirmation, order: int) -> SettingResult:
        log = log_id(self._id, confirmation.key)
        params, hash_ = self._trainings.job(log, confirmation.job, self._plan.free)
        search = next((each for each in self._searches if each.scope == confirmation.scope), None)
        state, _ = self._ledger.confirmation_states.get(confirmation.key, (State.RUNNING, ""))
        return SettingResult(
            key=confirmation.key,
            labels=confirmation.labels,
            order=order,
            state=state,
            settings=confirmation.settings,
            seeds=self._built(self._ledger.seeds_of(confirmation.key), params),
            name=confirmation.label,
            role=Role.named(confirmation.roles),
            arm="" if search is None else search.arm,
            search=1 if search is None else search.number,
            trial=confirmation.trial,
            params=params,
            job_hash=hash_,
            log=log,
            run_id=self._trainings.run_id(log),
        )


def write_results_on_close(reader: SweepReader, watch: ProgressListener) -> ProgressListener:
    """Wraps a listener so that `sweep.json` is also written when a training ends.

    After a write, none follows for WRITE_EVERY seconds and for WRITE_SHARE times the duration of the write.
    """
    due = 0.0

    def listen(event: ProgressEvent) -> None:
        nonlocal due
        watch(event)
        if event.kind == "close" and (began := time.monotonic()) >= due:
            with suppress(OSError):  # on a full disk, writing the ledger fails and stops the sweep
                write_result(reader.result(State.RUNNING, ""))
            ended = time.monotonic()
            due = ended + max(WRITE_EVERY, WRITE_SHARE * (ended - began))

    return listen
