"""Builds the result of a sweep from its ledger."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from mlcl.config import Goal, dump_job
from mlcl.results.documents import write_result
from mlcl.results.provenance import Tags, data_notes, lower_is_better, provenance_of
from mlcl.results.sweep_arms import ArmResult
from mlcl.results.sweep_result import DataSummary, SweepRequest, SweepResult
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
from mlcl.tracking import State, typed_params
from mlcl.tracking.names import Tag

WRITE_EVERY = 10.0
"""The smallest number of seconds between two writes of `sweep.json` while trainings run."""


class SweepReader:
    """Builds the result of a sweep from its ledger and logs."""

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
        """Returns the result of the sweep so far; arguments that are not explained become its fields.

        `confirmed` are the keys of the settings that this command confirmed, `model` that of the registered
        model.
        """
        plan, ledger = self._plan, self._ledger
        counted, baselines = self._counted(model=True), self._counted(model=False)
        own = [each.scope for each in self._searches if each.role is Role.MODEL]
        kept = {entry.key for entry in (*counted, *baselines)}
        raced = [key for key, each in ledger.confirmations.items() if each.race]
        trials = [each for each in ledger.entries.values() if each.number is not None]
        settings = self._settings()
        tags = [self._trainings.tags(log_id(self._id, key)) for key in ledger.entries]
        mine = dict(self._trainings.tags(self._id))
        if len(ledger.codes) > 1:
            mine[Tag.CODE] = ", then ".join(ledger.codes)
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
        """Describes the data set from the tags of the sweep's own log and of its trainings."""
        return DataSummary(
            name=next(iter(tags), own).get(Tag.DATA, ""),
            fingerprint=own.get(Tag.FINGERPRINT, ""),
            notes=tuple(note for notes in data_notes(tags).values() for note in notes),
            test_rows=self._test_rows,
        )

    def _built(self, entries: Collection[Entry]) -> tuple[TrainingResult, ...]:
        build, free = self._trainings.build, self._plan.free
        return tuple(build(entry, log_id(self._id, entry.key), self._params, free) for entry in entries)

    def _settings(self) -> dict[str, SettingResult]:
        """Returns the confirmed settings by key; a number or `baseline` tells equal names apart."""
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
        build, free = self._trainings.build, self._plan.free
        search = next((each for each in self._searches if each.scope == confirmation.scope), None)
        state, _ = self._ledger.confirmation_states.get(confirmation.key, (State.RUNNING, ""))
        return SettingResult(
            key=confirmation.key,
            labels=confirmation.labels,
            order=order,
            state=state,
            settings=confirmation.settings,
            seeds=tuple(
                build(entry, log_id(self._id, entry.key), params, free)
                for entry in self._ledger.seeds_of(confirmation.key)
            ),
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


def kept_on_disk(reader: SweepReader, watch: ProgressListener) -> ProgressListener:
    """Wraps a listener, and writes `sweep.json` after trainings end, at most every WRITE_EVERY seconds."""
    last = -WRITE_EVERY

    def listen(event: ProgressEvent) -> None:
        nonlocal last
        watch(event)
        if event.kind == "close" and time.monotonic() - last >= WRITE_EVERY:
            with suppress(OSError):  # a full disk stops the sweep where the ledger is written
                write_result(reader.result(State.RUNNING, ""))
            last = time.monotonic()

    return listen
