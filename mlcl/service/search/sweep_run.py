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
from mlcl.results.sweep_result import DataSummary, SweepRequest, SweepResult, rank_trials
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
        self._scopes = [search.scope for search in search_plans(plan) if search.role is Role.MODEL]
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
        self._log_view(None)

    def _log_view(self, metric: str | None) -> None:
        plan, id = self._plan, self.log.id
        space, keys = plan.space, [*plan.searched_keys, *plan.free_keys]
        self.log.log_view(id, trials_view(id, keys, space.metric, space.mode, metric))

    def _counted_trials(self) -> list[Entry]:
        """Returns the comparable trials of the swept job's searches, see `Ledger.counted_trials`."""
        return [trial for scope in self._scopes for trial in self._ledger.counted_trials(scope)]

    @property
    def best(self) -> Entry | None:
        """The best complete trial of the swept job so far."""
        mode = self._plan.space.mode
        best_trials = [
            trial for scope in self._scopes for trial in self._ledger.ranked_trials(scope, mode)[:1]
        ]
        return next(iter(rank_trials(best_trials, mode)), None)

    def _count_ended(self) -> int:
        ledger = self._ledger
        return sum(ledger.trial_count(scope=scope) - ledger.left_count(scope=scope) for scope in self._scopes)

    def log_intermediate(self) -> None:
        """Logs the value of each ended trial at the last epoch that all reported, if a trial was pruned."""
        # A repeated trial has no intermediate values.
        trials = [trial for trial in self._counted_trials() if trial.intermediate]
        ended_trials = [trial for trial in trials if trial.state in (State.COMPLETE, State.PRUNED)]
        epochs = (
            set.intersection(*(set(dict(trial.intermediate)) for trial in ended_trials))
            if ended_trials
            else set()
        )
        if not epochs or all(trial.state is State.COMPLETE for trial in ended_trials):
            return
        last_epoch = max(epochs)
        name = f"{RUNG}{last_epoch}/{self._plan.space.metric.rpartition('/')[2]}"
        for trial in ended_trials:
            log = RunLog.attach(self._logs.home, log_id(self.log.id, trial.key))
            log.log_metrics({name: dict(trial.intermediate)[last_epoch]}, step=0)
            self._logs.deliver(log.id)
        self._log_view(name)

    def log_curve(self) -> None:
        """Logs the best score so far, in the present space, at the number of each ended trial as the step."""
        best: float | None = None
        better = max if self._plan.space.mode == "max" else min
        counted_keys = {entry.key for entry in self._counted_trials()}
        ledger = self._ledger
        closed_entries = [ledger.entries[key] for event, key, _ in ledger.history if event == "close"]
        trials = (
            entry for entry in closed_entries if entry.number is not None and entry.scope in self._scopes
        )
        for step, entry in enumerate(trials, start=1):
            if entry.key in counted_keys and entry.state is State.COMPLETE and entry.score is not None:
                best = entry.score if best is None else better(best, entry.score)
            if best is not None:
                self.log.log_metrics({SWEEP_BEST: best}, step)

    def log_last_point(self) -> None:
        """Logs the last point of the curve: the best score so far, at the number of ended trials."""
        count, best = self._count_ended(), self.best
        if best is not None and best.score is not None and count:
            self.log.log_metrics({SWEEP_BEST: best.score}, count)

    def conclude(self, *, run_id: str | None, spent: str, verdict: str) -> None:
        """Logs the counts of trials by state, the used time, the verdict, and the best trial's metrics."""
        trials, best = self._counted_trials(), self.best
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
        self.log.log_final_metrics(metrics, step=self._count_ended())


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
        self._plan, self._ledger, self._sweep_id = plan, ledger, ledger.head["id"]
        self._searches, self._test_rows = search_plans(plan), test_rows
        self._trainings = TrainingResults(home, run_id)
        self._params = typed_params(plan.search_job(), plan.free_keys)

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
        model_trials, baseline_trials = self._counted_trials(model=True), self._counted_trials(model=False)
        scopes = self._model_scopes()
        counted_keys = {entry.key for entry in (*model_trials, *baseline_trials)}
        race_keys = [key for key, confirmation in ledger.confirmations.items() if confirmation.race]
        trials = [entry for entry in ledger.entries.values() if entry.number is not None]
        settings = self._build_settings()
        tags = [self._trainings.tags(log_id(self._sweep_id, key)) for key in ledger.entries]
        sweep_tags = {**self._trainings.tags(self._sweep_id), **ledger.code_tags}
        return SweepResult(
            id=self._sweep_id,
            name=plan.name,
            state=state,
            reason=reason,
            folder=ledger.folder,
            goals=tuple(map(Goal, plan.scores, (goal.mode for goal in plan.space.goals))),
            score=plan.score,
            fresh_score=plan.fresh_score,
            mode=plan.space.mode,
            trials=self._build_results(model_trials),
            confirmations=tuple(settings[key] for key in confirmed),
            registered=ledger.registered.get(model, ""),
            spent=spent,
            undelivered=undelivered,
            run_id=self._trainings.run_id(self._sweep_id),
            baseline_trials=self._build_results(baseline_trials),
            earlier_baseline_trials=self._build_results(
                [entry for entry in trials if entry.scope not in scopes and entry.key not in counted_keys]
            ),
            dropped=self._build_results(
                [entry for entry in trials if entry.scope in scopes and entry.key not in counted_keys]
            ),
            earlier=tuple(setting for key, setting in settings.items() if key not in confirmed),
            arms=arms,
            race_trainings=self._build_results([seed for key in race_keys for seed in ledger.seeds_of(key)]),
            asked=self._request(),
            data=self._data_summary(sweep_tags, tags),
            job=dump_job(plan.job),
            params=self._params,
            space=plan.space_text,
            free=plan.free_keys,
            lower_is_better=lower_is_better(tags),
            provenance=provenance_of(sweep_tags, tags),
        )

    def _model_scopes(self) -> set[str]:
        """Returns the scopes of the swept job's searches, with those that only earlier commands had."""
        baseline_scopes = {search.scope for search in self._searches if search.role is not Role.MODEL}
        earlier_scopes = set(filter(LATER_SEARCH.fullmatch, self._ledger.searches)) - baseline_scopes
        return earlier_scopes | {search.scope for search in self._searches if search.role is Role.MODEL}

    def _request(self) -> SweepRequest:
        plan, budget = self._plan, self._plan.resources.budget
        return SweepRequest(
            plan.trials, plan.seeds, plan.confirm, budget.text if budget else "", plan.searches
        )

    def _counted_trials(self, *, model: bool) -> list[Entry]:
        """Returns the comparable trials of the swept job's searches (`model`), or of all other searches."""
        scopes = [search.scope for search in self._searches if (search.role is Role.MODEL) == model]
        return [entry for scope in scopes for entry in self._ledger.counted_trials(scope)]

    def _data_summary(self, sweep_tags: Tags, tags: Sequence[Tags]) -> DataSummary:
        return DataSummary(
            name=next(iter(tags), sweep_tags).get(Tag.DATA, ""),
            fingerprint=sweep_tags.get(Tag.FINGERPRINT, ""),
            notes=tuple(note for notes in data_notes(tags).values() for note in notes),
            test_rows=self._test_rows,
        )

    def _build_results(
        self, entries: Collection[Entry], params: Mapping[str, Any] | None = None
    ) -> tuple[TrainingResult, ...]:
        build, free = self._trainings.build, self._plan.free_keys
        shared_params = self._params if params is None else params
        return tuple(
            build(entry, log_id(self._sweep_id, entry.key), shared_params, free) for entry in entries
        )

    def _build_settings(self) -> dict[str, SettingResult]:
        """Returns the confirmed settings by key; equal names get the suffix `, baseline` or a number."""
        models = {AS_WRITTEN, *(trial.label for trial in self._ledger.trials())}
        confirmations = [
            confirmation for confirmation in self._ledger.confirmations.values() if not confirmation.race
        ]
        name_counts, settings = Counter[str](), {}
        for order, confirmation in enumerate(confirmations):
            setting, name = self._build_setting(confirmation, order), confirmation.label
            name += ", baseline" if setting.role == Role.BASELINE and name in models else ""
            name_counts[name] += 1
            name += f" ({name_counts[name]})" if name_counts[name] > 1 else ""
            settings[confirmation.key] = replace(setting, name=name)
        return settings

    def _build_setting(self, confirmation: Confirmation, order: int) -> SettingResult:
        log = log_id(self._sweep_id, confirmation.key)
        params, hash_ = self._trainings.job(log, confirmation.job, self._plan.free_keys)
        search = next((search for search in self._searches if search.scope == confirmation.scope), None)
        state, _ = self._ledger.confirmation_states.get(confirmation.key, (State.RUNNING, ""))
        return SettingResult(
            key=confirmation.key,
            labels=confirmation.labels,
            order=order,
            state=state,
            settings=confirmation.settings,
            seeds=self._build_results(self._ledger.seeds_of(confirmation.key), params),
            name=confirmation.label,
            role=Role.from_names(confirmation.roles),
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
        if event.kind == "close" and (start := time.monotonic()) >= due:
            with suppress(OSError):  # on a full disk, writing the ledger fails and stops the sweep
                write_result(reader.result(State.RUNNING, ""))
            end = time.monotonic()
            due = end + max(WRITE_EVERY, WRITE_SHARE * (end - start))

    return listen
