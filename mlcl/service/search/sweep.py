"""A sweep: search a space, confirm the best on fresh seeds, register the best model."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from optuna.storages import BaseStorage

from mlcl.config import job_hash
from mlcl.errors import UserError
from mlcl.results.documents import write_sweep
from mlcl.results.sweep_result import SweepResult, ranked
from mlcl.service.engine.command import Command, Task, Work, run_command
from mlcl.service.engine.entries import SpaceVersion
from mlcl.service.engine.ledger import Ledger
from mlcl.service.engine.nested_trials import NestedTrials
from mlcl.service.engine.progress import ProgressListener, Reporter
from mlcl.service.engine.session import Engine
from mlcl.service.search.baseline_search import baseline_searches, scope_of
from mlcl.service.search.best_model import register_best
from mlcl.service.search.confirmation import Candidate, candidates
from mlcl.service.search.confirmation_source import ConfirmationSource
from mlcl.service.search.search_source import SearchSource
from mlcl.service.search.searches_source import SearchesSource
from mlcl.service.search.space_versions import SpaceVersions, warm_sweep
from mlcl.service.search.study_storage import open_storage
from mlcl.service.search.summary import SweepReader, kept_on_disk
from mlcl.service.search.sweep_identity import sweep_folder, sweep_identity
from mlcl.service.search.sweep_plan import SweepPlan, check_corners, check_plan
from mlcl.service.search.sweep_run import SweepRun
from mlcl.store import RunFolder
from mlcl.tracking import State
from mlcl.tracking.leaderboard import describe_experiment
from mlcl.tracking.names import MAX_REASON, Tag

RUN_PATIENCE = 5.0
"""Seconds that the best trial's run may take to be there in MLflow, for the sweep's run to name it."""


def run_sweep(
    plan: SweepPlan, *, home: Path, watch: ProgressListener, strict_code: bool = False
) -> SweepResult:
    """Searches, confirms, registers the best. Raises UserError before anything has been started."""
    return run_command(SweepTask(plan, home), home, watch, strict_code=strict_code)


class SweepTask(Task[SweepResult]):
    """A sweep as it was asked for. Raises UserError for whatever can be wrong in the plan."""

    kind, option = "sweep", "--name"

    def __init__(self, plan: SweepPlan, home: Path) -> None:
        self._job_data = check_plan(plan, home)
        for search in baseline_searches(plan).values():
            check_corners(search, self._job_data.dataset.info)
        self._plan, self._home = plan, home
        self.name, self.experiment, self.job = plan.name, plan.job.experiment, plan.job
        self.job_hash, self.fingerprint = job_hash(plan.job), self._job_data.fingerprint
        self.resources = plan.resources
        self.identity = sweep_identity(plan, self._job_data, home)
        self.asked = {"trials": plan.trials, "seeds": plan.seeds, "confirm": plan.confirm}

    def prepare(self) -> None:
        """Whose trials are taken over, and whether the study's storage answers."""
        if self._plan.warm_start is not None:
            # By its id from here on: a name may come to mean another sweep, with --fresh this one.
            warm = warm_sweep(self._home, self._plan.warm_start, self.identity)
            self._plan = replace(self._plan, warm_start=warm)
        if self._plan.study is not None:
            open_storage(self._plan.study)

    def folder(self) -> RunFolder:
        """That of the sweep of this name."""
        folder = sweep_folder(self._plan, self._home, self.identity)
        if self._plan.warm_start == folder.path.name:
            raise UserError("a sweep has its own trials already", key="--warm-start", found=self.name)
        return folder

    def most(self, folder: RunFolder, announce: Callable[[str], None]) -> int:  # noqa: ARG002
        """The longer one of the two stages."""
        plan = self._plan
        searched = plan.most + sum(each.most for each in baseline_searches(plan).values())
        return max(searched, plan.seeds * (1 + plan.confirm + len(plan.baselines)))

    def take_up(self, command: Command) -> Sweep:
        """Study, logs and the sweep's own run say what the ledger says."""
        plan, ledger, id = self._plan, command.ledger, command.folder.path.name
        record = command.folder.record
        assert record is not None
        own = SweepRun(plan, record, command.logs)
        command.logs.deliver(id)
        reader = SweepReader(plan, ledger, self._home, command.delivery.run_id)
        reporter = Reporter(
            ledger,
            command.account,
            kept_on_disk(reader, command.watch),
            metric=plan.space.metric,
            score=plan.score,
            best=lambda: next(iter(ranked(ledger.counted(), plan.space.mode)), None),
        )
        reporter.note(f"sweep {plan.name}: score {plan.score} ({plan.space.mode})")
        storage = open_storage(plan.study or command.folder.path / "study.journal")
        version, study = SpaceVersions(plan, ledger, storage, self._home).open(reporter.note)
        data = self._job_data.dataset.info
        for note in data.notes:
            reporter.note(f"data: {note}")
        shared = plan.shared_params()
        store = NestedTrials(ledger, command.folder.path, command.logs, data, plan.free, shared=shared)
        store.open_all()
        search = SearchSource(plan, ledger, study, store, lambda: own.point(ledger, search.best()))
        store.close_all()
        search.sync()
        if version.number > 0:
            _tag_dropped(ledger, version, store)
        own.asked(version.number)
        own.curve(ledger)
        baselines = {
            name: self._baseline(its, command, storage, reporter)
            for name, its in baseline_searches(plan).items()
        }
        engine = command.engine(reporter, plan.space.search.max_failed)
        write_sweep(reader.result(State.RUNNING, ""))
        return Sweep(plan, command, engine, own, search, store, reader, baselines)

    def _baseline(
        self, plan: SweepPlan, command: Command, storage: BaseStorage, reporter: Reporter
    ) -> SearchSource:
        """The search of a baseline, brought to what the ledger says."""
        ledger, scope, data = command.ledger, scope_of(plan), self._job_data.dataset.info
        _, study = SpaceVersions(plan, ledger, storage, self._home, scope).open(reporter.note)
        store = NestedTrials(ledger, command.folder.path, command.logs, data, plan.free, scope)
        store.open_all()
        search = SearchSource(plan, ledger, study, store, scope=scope)
        store.close_all()
        search.sync()
        return search


def _tag_dropped(ledger: Ledger, version: SpaceVersion, store: NestedTrials) -> None:
    """Which trials do not fit the present space, and why: what reads MLflow must leave them out too."""
    counted = {entry.key for entry in ledger.counted()}
    for entry in ledger.trials():
        reason = "" if entry.key in counted else version.dropped.get(entry.key, "of an earlier space")
        store.attach(entry.key).tags({Tag.DROPPED: reason})


@dataclass
class Sweep(Work[SweepResult]):
    """A sweep that was taken up; `confirmed` are the settings whose seeds stand in the report.

    `baselines` are the searches of trained baselines by name.
    """

    plan: SweepPlan
    command: Command
    engine: Engine
    own: SweepRun
    search: SearchSource
    store: NestedTrials
    reader: SweepReader
    baselines: Mapping[str, SearchSource] = field(default_factory=dict)
    confirmed: Sequence[Candidate] = ()
    finished: bool = False

    def train(self) -> None:
        """Search, then confirmation."""
        searches = SearchesSource([self.search, *self.baselines.values()])
        self.engine.run(searches)
        best = self.search.best()
        self.finished = searches.left() == 0 and (self.plan.seeds == 0 or best is None)
        if self.plan.seeds == 0 or best is None:
            return
        ledger = self.command.ledger
        tuned = {name: its for name, search in self.baselines.items() if (its := search.best()) is not None}
        chosen = candidates(self.plan, ledger.counted(), tuned)
        known = [candidate for candidate in chosen if candidate.key in ledger.groups]
        if len(known) < len(chosen) and self.engine.stop():
            # The search was cut short: what is best so far need not be the best found.
            self.confirmed = known
            return
        confirmation = ConfirmationSource(self.plan, ledger, self.store, chosen)
        self.engine.run(confirmation)
        self.confirmed = chosen
        self.finished = searches.left() == 0 and confirmation.finished

    def outcome(self) -> SweepResult:
        """An end that was asked for when everything was there changes nothing."""
        stop = self.engine.stop
        if stop.cause is not None and not self.finished:
            return self._report(stop.cause, stop.reason)
        if self.search.best() is None:
            return self._report(State.FAILED, "no trial is complete")
        return self._report(State.COMPLETE, "")

    def conclude(self, state: State, reason: str) -> None:
        """The best trial's figures, the verdict, and the state, in the sweep's own run."""
        best, ledger = self.search.best(), self.command.ledger
        run_id = None
        if best is not None:  # delivery may be some moments behind
            patience = 0.0 if self.command.stop() else RUN_PATIENCE
            run_id = self.command.delivery.wait_run_id(self.store.log(best), patience)
        if state is State.COMPLETE:
            self.own.rungs(ledger, self.command.logs)
        its = self._report(state, reason)
        said = its.verdict.sentence if its.verdict else ""
        self.own.log.artifacts([write_sweep(its)])
        self.own.conclude(ledger, best, state, reason, run_id=run_id, spent=its.spent, verdict=said)

    def delivered(self) -> None:
        """Describes the experiment and registers the best model. What fails there does not undo the sweep."""
        self._try("the experiment is not described", self._describe)
        self._try("the best model is not registered", self._register)

    def _try(self, problem: str, act: Callable[[], None]) -> None:
        try:
            act()
        except KeyboardInterrupt:
            self.engine.reporter.note(f"{problem}: interrupted; the same command does it")
        except Exception as error:
            reason = self.engine.safe(f"{type(error).__name__}: {error}")[:MAX_REASON]
            self.engine.reporter.note(f"{problem}: {reason}")

    def _describe(self) -> None:
        if self.command.delivery.run_id(self.own.log.id) is not None:
            describe_experiment(self.command.tracker, self.plan.job.experiment)

    def _register(self) -> None:
        command, best = self.command, self.search.best()
        if best is None or best.score is None or best.key in command.ledger.registered:
            return
        run_id = command.delivery.run_id(self.store.log(best))
        if run_id is not None:
            folder, stop = self.store.folder(best), command.stop
            text = register_best(command.tracker, self.plan, best, folder, run_id, stop)
            command.ledger.append("registered", key=best.key, text=text)

    def report(self, outcome: SweepResult, undelivered: int) -> SweepResult:
        """The result with what MLflow has got meanwhile."""
        its = self._report(outcome.state, outcome.reason, undelivered)
        write_sweep(its)
        return its

    def _report(self, state: State, reason: str, undelivered: int = 0) -> SweepResult:
        keys, spent = [each.key for each in self.confirmed], self.engine.account.used_text()
        return self.reader.result(state, reason, keys, spent=spent, undelivered=undelivered)
