"""A sweep: search a space, confirm the best on fresh seeds, register the best model."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

from mlcl.config import job_hash
from mlcl.data import DatasetInfo
from mlcl.errors import UserError
from mlcl.results.documents import write_result
from mlcl.results.sweep_result import SweepResult, ranked
from mlcl.service.engine.command import Command, Subject, open_command
from mlcl.service.engine.engine import Engine
from mlcl.service.engine.entries import Entry, SpaceVersion
from mlcl.service.engine.ledger import Ledger
from mlcl.service.engine.nested_trials import NestedTrials
from mlcl.service.engine.progress import ProgressListener, Reporter
from mlcl.service.search.best_model import register_best
from mlcl.service.search.confirmation import Candidate, candidates, entrants, race_winner
from mlcl.service.search.confirmation_source import ConfirmationSource
from mlcl.service.search.search_source import Search, SearchSource
from mlcl.service.search.space_versions import open_version, warm_sweep
from mlcl.service.search.summary import SweepReader, kept_on_disk
from mlcl.service.search.sweep_plan import (
    SweepPlan,
    baseline_searches,
    check_plan,
    scope_of,
    sweep_folder,
    sweep_identity,
)
from mlcl.service.search.sweep_run import SweepRun
from mlcl.store import RunFolder
from mlcl.tracking import State
from mlcl.tracking.leaderboard import describe_experiment
from mlcl.tracking.names import Tag

RUN_PATIENCE = 5.0
"""Seconds that the best trial's run may take to be there in MLflow, for the sweep's run to name it."""


def run_sweep(
    plan: SweepPlan, *, home: Path, watch: ProgressListener, strict_code: bool = False
) -> SweepResult:
    """Searches, confirms, registers the best. Raises UserError before anything has been started."""
    job_data = check_plan(plan, home)
    identity = sweep_identity(plan, job_data, home)
    if plan.warm_start is not None:
        # By its id from here on: a name may come to mean another sweep, with --fresh this one.
        plan = replace(plan, warm_start=warm_sweep(home, plan.warm_start, identity))
    subject = Subject(
        kind="sweep",
        option="--name",
        name=plan.name,
        experiment=plan.job.experiment,
        job_hash=job_hash(plan.job),
        fingerprint=job_data.fingerprint,
        job=plan.job,
        resources=plan.resources,
    )
    asked = {"trials": plan.trials, "seeds": plan.seeds, "confirm": plan.confirm}
    with open_command(
        subject,
        home,
        watch,
        lambda: _find(plan, home, identity),
        lambda _ledger, _announce: _most(plan),
        strict_code=strict_code,
    ) as command:
        with command.start(identity, asked):
            sweep = _open_sweep(plan, command, job_data.dataset.info)
        with command.work(sweep.engine.reporter, sweep.conclude) as end:
            sweep.engine.run(sweep.searches)
            sweep.confirm()
            end.state, end.reason = sweep.outcome()
        if end.undelivered == 0:
            sweep.attempt("the experiment is not described", sweep.describe)
            sweep.attempt("the best model is not registered", sweep.register)
        result = sweep.report(end.state, end.reason, end.undelivered)
        write_result(result)
        return result


def _find(plan: SweepPlan, home: Path, identity: Mapping[str, object]) -> RunFolder:
    """The folder of the sweep of this name, or a new one. Raises UserError for another sweep's."""
    folder = sweep_folder(plan, home, identity)
    if plan.warm_start == folder.path.name:
        raise UserError("a sweep has its own trials already", key="--warm-start", found=plan.name)
    return folder


def _most(plan: SweepPlan) -> int:
    """Trainings of the longer one of the two stages."""
    searched = plan.most + sum(each.most for each in baseline_searches(plan).values())
    return max(searched, plan.seeds * (1 + plan.confirm + len(plan.baselines)))


def _open_sweep(plan: SweepPlan, command: Command, data: DatasetInfo) -> Sweep:
    """Opens the searches of a sweep and brings the logs to the state of the ledger."""
    ledger, home = command.ledger, command.logs.home
    own = SweepRun(plan, command.record, command.logs)
    command.logs.deliver(command.folder.path.name)
    reader = SweepReader(plan, ledger, home, command.delivery.run_id)
    reporter = Reporter(
        ledger,
        command.account,
        kept_on_disk(reader, command.watch),
        metric=plan.space.metric,
        score=plan.score,
        best=lambda: next(iter(ranked(ledger.counted(), plan.space.mode)), None),
    )
    reporter.note(f"sweep {plan.name}: score {plan.score} ({plan.space.mode})")
    version = open_version(plan, ledger, home, reporter.note)
    for note in data.notes:
        reporter.note(f"data: {note}")
    store = NestedTrials(
        ledger, command.folder.path, command.logs, data, plan.free, shared=plan.shared_params()
    )
    store.open_all()
    search = Search(plan, ledger)
    baselines = {}
    for name, its in baseline_searches(plan).items():
        open_version(its, ledger, home, reporter.note, scope_of(its))
        baselines[name] = Search(its, ledger, scope_of(its))
    store.close_all()
    if version.number > 0:
        _tag_dropped(ledger, version, store)
    own.log_request(version.number)
    own.curve(ledger)
    engine = command.engine(reporter, plan.space.search.max_failed)
    write_result(reader.result(State.RUNNING, ""))
    return Sweep(plan, command, engine, own, search, store, reader, baselines)


def _tag_dropped(ledger: Ledger, version: SpaceVersion, store: NestedTrials) -> None:
    """Tags trials that do not fit the present space with the reason, for readers of MLflow."""
    counted = {entry.key for entry in ledger.counted()}
    for entry in ledger.trials():
        reason = "" if entry.key in counted else version.dropped.get(entry.key, "of an earlier space")
        store.attach(entry.key).tags({Tag.DROPPED: reason})


@dataclass
class Sweep:
    """A sweep that runs; `confirmed` are the settings whose seeds are in the report.

    `baselines` are the searches of trained baselines by name.
    """

    plan: SweepPlan
    command: Command
    engine: Engine
    own: SweepRun
    search: Search
    store: NestedTrials
    reader: SweepReader
    baselines: Mapping[str, Search] = field(default_factory=dict)
    confirmed: Sequence[Candidate] = ()
    finished: bool = False

    @property
    def best(self) -> Entry | None:
        """The best complete trial so far."""
        return self.search.best()

    @cached_property
    def searches(self) -> SearchSource:
        """The sweep's own search and those of its baselines."""
        searches = [self.search, *self.baselines.values()]
        ledger = self.command.ledger
        return SearchSource(searches, self.store, lambda: self.own.point(ledger, self.best))

    def confirm(self) -> None:
        """Trains the best settings, the job as written and the baselines on fresh seeds."""
        self.finished = self.searches.left() == 0 and (self.plan.seeds == 0 or self.best is None)
        if self.plan.seeds == 0 or self.best is None:
            return
        ledger = self.command.ledger
        tuned = {name: its for name, search in self.baselines.items() if (its := search.best()) is not None}
        pick = self.race()
        if pick is None and self.plan.space.search.race_seeds:
            return
        chosen = candidates(self.plan, ledger.counted(), tuned, pick)
        known = [candidate for candidate in chosen if candidate.key in ledger.confirmations]
        if len(known) < len(chosen) and self.engine.stop():
            # The search was cut short: what is best so far need not be the best found.
            self.confirmed = known
            return
        confirmation = ConfirmationSource(self.plan, ledger, self.store, chosen)
        self.engine.run(confirmation)
        self.confirmed = chosen
        self.finished = self.searches.left() == 0 and confirmation.finished

    def race(self) -> Candidate | None:
        """Trains the job as written and the best trials on the seeds of the race; returns the pick.

        None without a race, and where a stop came first.
        """
        ledger = self.command.ledger
        raced = entrants(self.plan, ledger.counted())
        if not self.plan.space.search.race_seeds or (len(raced) > 1 and self.engine.stop()):
            return None
        if len(raced) == 1:
            return replace(raced[0], key="")
        self.engine.run(ConfirmationSource(self.plan, ledger, self.store, raced, race=True))
        pick = race_winner(raced, ledger, self.plan.space.mode)
        return pick and replace(pick, key="")

    def outcome(self) -> tuple[State, str]:
        """Returns state and reason; a stop after the last training changes nothing."""
        stop = self.engine.stop
        if stop.cause is not None and not self.finished:
            return stop.cause, stop.reason
        if self.best is None:
            return State.FAILED, "no trial is complete"
        return State.COMPLETE, ""

    def conclude(self, state: State, reason: str) -> None:
        """Logs the best trial's metrics and the verdict to the sweep's own run."""
        best, ledger = self.best, self.command.ledger
        run_id = None
        if best is not None:  # delivery may be some moments behind
            patience = 0.0 if self.command.stop() else RUN_PATIENCE
            run_id = self.command.delivery.wait_run_id(self.store.log(best), patience)
        if state is State.COMPLETE:
            self.own.log_intermediate(ledger, self.command.logs)
        its = self.report(state, reason)
        said = its.verdict.sentence if its.verdict else ""
        self.own.log.artifacts([write_result(its)])
        self.own.conclude(ledger, best, run_id=run_id, spent=its.spent, verdict=said)

    def attempt(self, problem: str, act: Callable[[], None]) -> None:
        """Calls `act`, on which the result of the sweep does not depend, and reports an error."""
        try:
            act()
        except KeyboardInterrupt:
            self.engine.reporter.note(f"{problem}: interrupted; the same command does it")
        except Exception as error:
            self.engine.reporter.note(f"{problem}: {self.command.reason(error)}")

    def describe(self) -> None:
        """Describes the experiment in MLflow."""
        if self.command.delivery.run_id(self.own.log.id) is not None:
            describe_experiment(self.command.tracker, self.plan.job.experiment)

    def register(self) -> None:
        """Registers the best model in MLflow, once a run: a store that was deleted gets it again."""
        command, best = self.command, self.best
        if best is None or best.score is None:
            return
        run_id = command.delivery.run_id(self.store.log(best))
        if run_id is not None and run_id not in command.ledger.registered_runs:
            folder, stop = self.store.folder(best), command.stop
            text = register_best(command.tracker, self.plan, best, folder, run_id, stop)
            command.ledger.append("registered", key=best.key, text=text, run=run_id)

    def report(self, state: State, reason: str, undelivered: int = 0) -> SweepResult:
        """Returns the present result, with the ids of runs that MLflow has."""
        keys, spent = [each.key for each in self.confirmed], self.command.account.used_text()
        return self.reader.result(state, reason, keys, spent=spent, undelivered=undelivered)
