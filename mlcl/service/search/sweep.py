"""Runs a sweep: searches each arm, confirms the best settings on fresh seeds, registers the best model."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path

from mlcl.config import job_hash
from mlcl.data import DatasetInfo
from mlcl.results.documents import write_result
from mlcl.results.runs import HOW_TO_KEEP
from mlcl.results.sweep_result import SweepResult
from mlcl.service.engine.command import Command, Subject, open_command
from mlcl.service.engine.entries import Entry, SpaceVersion, scope_key
from mlcl.service.engine.ledger import Ledger
from mlcl.service.engine.nested_trials import NestedTrials
from mlcl.service.engine.progress import ProgressListener, Reporter
from mlcl.service.engine.source import TrainingSource
from mlcl.service.search.arms import SearchPlan, arm_results, search_plans
from mlcl.service.search.best_model import model_training, register_best
from mlcl.service.search.confirmation import (
    Candidate,
    confirmed_candidates,
    entrants,
    most_confirmed,
    most_raced,
    needs_race,
    planned_trials,
    race_winner,
    search_result,
)
from mlcl.service.search.confirmation_source import ChosenSettings, ConfirmationSource, drop_settings
from mlcl.service.search.kept_files import KeptFiles
from mlcl.service.search.plan_checks import check_plan
from mlcl.service.search.sampling import why_outside
from mlcl.service.search.search_source import Search, SearchSource
from mlcl.service.search.space_versions import open_version, with_warm_sweep
from mlcl.service.search.sweep_plan import SweepPlan, complete_plan, sweep_folder, sweep_identity
from mlcl.service.search.sweep_run import SweepReader, SweepRun, write_results_on_close
from mlcl.significance.roles import Role
from mlcl.tracking import State
from mlcl.tracking.names import Tag
from mlcl.tracking.shared_view import describe_experiment

UNREGISTERED, AGAIN = "the best model is not registered", "the same command does it"
RUN_PATIENCE = 15.0
"""Seconds to wait for the best trial's run to appear in MLflow: its id is logged to the sweep's run."""


def run_sweep(
    plan: SweepPlan, *, home: Path, watch: ProgressListener, strict_code: bool = False
) -> SweepResult:
    """Runs a sweep, or resumes the one with the plan's name. Raises UserError for a wrong plan."""
    job_data = check_plan(plan, home)
    plan = complete_plan(plan, job_data, home)
    identity = sweep_identity(plan, job_data, home)
    plan = with_warm_sweep(plan, identity, home)
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
    with open_command(
        subject,
        home,
        watch,
        lambda: sweep_folder(plan, home, identity),
        lambda _ledger, _announce: _max_stage_trainings(plan),
        strict_code=strict_code,
    ) as command:
        with command.start(identity, {"trials": plan.trials, "seeds": plan.seeds, "confirm": plan.confirm}):
            sweep = Sweep(plan, command, job_data.dataset.info)
        with command.work(sweep.engine.reporter, sweep.conclude) as end:
            sweep.engine.run(sweep.stages(), sweep.encode_inputs)
            end.state, end.reason = sweep.outcome()
        sweep.attempt("the experiment is not described", sweep.describe)
        sweep.attempt(UNREGISTERED, sweep.register)
        sweep.attempt("files of trainings that are not kept stay", sweep.clean)
        result = sweep.report(end.state, end.reason, end.undelivered)
        write_result(result)
        return result


def _max_stage_trainings(plan: SweepPlan) -> int:
    """Returns the largest number of trainings in one stage: in the searches, the races or on fresh seeds."""
    plans = search_plans(plan)
    trial_count = sum(search.most_trials for search in plans)
    return max(trial_count, sum(map(most_raced, plans)), sum(map(most_confirmed, plans)))


def _tag_dropped_trials(ledger: Ledger, version: SpaceVersion, store: NestedTrials, scope: str) -> None:
    counted_keys = {entry.key for entry in ledger.counted_trials(scope)}
    for entry in ledger.trials(scope=scope):
        reason = "" if entry.key in counted_keys else version.dropped.get(entry.key, "of an earlier space")
        store.attach(entry.key).log_tags({Tag.DROPPED: reason})


class Sweep:
    """A running sweep.

    `searches` has the search of each of the `plans` that has trials, `raced` the entrants of the races, and
    `chosen` the settings to confirm, all by scope. `confirmed` has the keys of the settings that are reported
    as confirmed. `finished` says whether no training is left.
    """

    def __init__(self, plan: SweepPlan, command: Command, data: DatasetInfo) -> None:
        """Opens the searches, and brings the logs up to date with the ledger."""
        ledger, home = command.ledger, command.logs.home
        self.plan, self.command, self.plans = plan, command, search_plans(plan)
        self.own = run = SweepRun(plan, command.record, ledger, command.logs)
        command.logs.deliver(command.folder.path.name)
        self.reader = SweepReader(plan, ledger, home, command.delivery.run_id, data.rows.get("test", 0))
        reporter = Reporter(
            ledger,
            command.account,
            write_results_on_close(self.reader, command.watch),
            metric=plan.space.metric,
            score=plan.score,
            best=lambda: run.best,
        )
        suffix = "; races choose k, lambda and temperature" if plan.knn_races else ""
        reporter.note(f"sweep {plan.name}: score {plan.score} ({plan.space.mode}){suffix}")
        for note in data.notes:
            reporter.note(f"data: {note}")
        if reason := why_outside(plan.space, plan.search_job()):
            reporter.note(reason)
        params = plan.shared_params()
        self.store = NestedTrials(
            ledger, command.folder.path, command.logs, data, plan.free_keys, shared=params
        )
        self.store.open_all()
        if plan.seeds:
            drop_settings(ledger, self.store, {search.scope for search in self.plans})
        self.searches: dict[str, Search] = {}
        for search in (search for search in self.plans if search.is_searched):
            version = open_version(search.plan, ledger, home, reporter.note, search.scope)
            if search.role is Role.MODEL and version.number > 0:
                _tag_dropped_trials(ledger, version, self.store, search.scope)
            self.searches[search.scope] = Search(search.plan, ledger, search.scope, reporter.note)
        self.store.close_all()
        run.log_request()
        run.log_curve()
        self.engine = command.engine(reporter, plan.space.search.max_failed)
        write_result(self.reader.result(State.RUNNING, ""))
        self.kept = KeptFiles(plan.job.tracking.keep, ledger, self.store, self.plans)
        self.raced: dict[str, list[Candidate]] = {}
        self.chosen: dict[str, list[Candidate]] = {}
        self.confirmed: Sequence[str] = ()
        self.finished = False

    def stages(self) -> Iterator[TrainingSource]:
        """Yields the sources to run: searches and races of control and baselines, then of the swept job.

        The last source trains the chosen settings on fresh seeds. Each source depends on the results of the
        earlier ones, whose trainings must have ended before the next source is taken.
        """
        model_searches = [search for search in self.plans if search.role is Role.MODEL]
        baseline_searches = [search for search in self.plans if search not in model_searches]
        yield from self._search_sources(baseline_searches, later_plans=model_searches)
        yield from self._choose_settings(baseline_searches)
        self._start_at_control(model_searches)
        yield from self._search_sources(model_searches)
        self.finished = sum(search.left() for search in self.searches.values()) == 0
        if self.plan.seeds and self.own.best is not None:
            yield from self._choose_settings(model_searches)
            yield from self._confirm_settings()

    def encode_inputs(self) -> AbstractContextManager[None]:
        """Returns a context in which all trainings run, which encodes frozen inputs, see `encode_ahead`."""
        jobs = [search.plan.job for search in self.plans]
        return self.command.encode_inputs(self.engine, jobs, test=self.plan.seeds > 0)

    def _search_sources(
        self, plans: Sequence[SearchPlan], later_plans: Sequence[SearchPlan] = ()
    ) -> Iterator[TrainingSource]:
        """Yields one source for the searches with trials, if any; forecasts include `later_plans`."""
        searches, later_searches = (
            [self.searches[search.scope] for search in group if search.is_searched]
            for group in (plans, later_plans)
        )
        if searches:
            yield SearchSource(searches, self.store, self.kept, self.own.log_last_point, later_searches)

    def _choose_settings(self, plans: Sequence[SearchPlan]) -> Iterator[TrainingSource]:
        """Yields the source of the races, if there are any, then sets `raced` and `chosen`."""
        ledger = self.command.ledger
        trials = {search.scope: planned_trials(search, ledger) for search in plans}
        race_entrants = {
            search.scope: entrants(search, trials[search.scope]) for search in plans if search.races
        }
        races = [
            ChosenSettings(race_entrants[search.scope], search.race_seeds, search.scope)
            for search in plans
            if needs_race(search, race_entrants.get(search.scope, []))
        ]
        is_known = all(
            scope_key(race.scope, candidate.key) in ledger.confirmations
            for race in races
            for candidate in race.settings
        )
        if races and (is_known or not self.engine.stop()):
            yield ConfirmationSource(self.plan, ledger, self.store, self.kept, races, race=True)
        self.raced |= race_entrants
        for search in plans:
            if search.scope not in race_entrants:
                self.chosen[search.scope] = confirmed_candidates(search, trials[search.scope])
            elif (winner := race_winner(search, race_entrants[search.scope], ledger)) is not None:
                self.chosen[search.scope] = [winner]

    def _start_at_control(self, model_searches: Sequence[SearchPlan]) -> None:
        """Adds the control's chosen setting, with the smallest head weights, to the starts of each search."""
        controls = {search.number: search.scope for search in self.plans if Role.CONTROL in search.role}
        for search in model_searches:
            scope = controls.get(search.number, "none")
            control_search, picks = self.searches.get(scope), self.chosen.get(scope)
            best = None if scope in self.raced or control_search is None else control_search.best()
            if search.is_searched and picks:  # without a race, the job as written is the first pick
                self.searches[search.scope].start_at(picks[0].settings if best is None else best.settings)

    def _confirm_settings(self) -> Iterator[TrainingSource]:
        """Yields the source that trains the chosen settings of all searches on fresh seeds."""
        ledger = self.command.ledger
        groups = [
            ChosenSettings(self.chosen[search.scope], search.fresh_seeds, search.scope)
            for search in self.plans
            if search.scope in self.chosen
        ]
        keys = [scope_key(group.scope, candidate.key) for group in groups for candidate in group.settings]
        known_keys = [key for key in keys if key in ledger.confirmations]
        is_whole = self.finished and len(groups) == len(self.plans) and len(known_keys) == len(keys)
        if not is_whole and self.engine.stop():
            # A search or a race was interrupted: the best setting so far may not be the final one.
            self.confirmed, self.finished = known_keys, False
            return
        confirmation = ConfirmationSource(self.plan, ledger, self.store, self.kept, groups)
        yield confirmation
        self.confirmed = keys
        self.finished = self.finished and confirmation.finished

    def outcome(self) -> tuple[State, str]:
        """Returns the final state and reason of the sweep; a stop after the last training has no effect."""
        stop = self.engine.stop
        if stop.cause is not None and not self.finished:
            return stop.cause, stop.reason
        if self.own.best is None:
            return State.FAILED, "no trial is complete"
        return State.COMPLETE, ""

    def conclude(self, state: State, reason: str) -> str:
        """Logs the best trial's metrics, the result and verdicts to the sweep's run; returns the verdicts."""
        best, run_id = self.own.best, None
        if best is not None:  # the run may not be delivered yet
            patience = 0.0 if self.command.stop() else RUN_PATIENCE
            run_id = self.command.delivery.wait_run_id(self.store.log(best), patience)
        if state is State.COMPLETE:
            self.own.log_intermediate()
        result = self.report(state, reason)
        if result.best_training is not None:
            self.kept.log(result.best_training.key)
        verdict_text = "\n".join(verdict.sentence for verdict in result.verdicts)
        self.own.log.log_artifacts([write_result(result)])
        self.own.conclude(run_id=run_id, spent=result.spent, verdict=verdict_text)
        return verdict_text

    def attempt(self, problem: str, action: Callable[[], None]) -> None:
        """Calls `action`, and announces its error instead of raising it: the sweep is complete without it."""
        try:
            action()
        except KeyboardInterrupt:
            self.engine.reporter.note(f"{problem}: interrupted; {AGAIN}")
        except Exception as error:
            self.engine.reporter.note(f"{problem}: {self.command.reason(error)}")

    def describe(self) -> None:
        """Writes the description of the sweep's experiment in MLflow, if the sweep's log was delivered."""
        run_id = self.command.delivery.delivered_run(self.own.log.id)
        if run_id is not None:
            describe_experiment(self.command.tracker, run_id)

    @property
    def model(self) -> Entry | None:
        """The training whose model is registered: that of `model_training`, or else the best trial."""
        training = model_training(self.plan, self.command.ledger, self.plans, self.raced, self.chosen)
        return training or self.own.best

    def register(self) -> None:
        """Registers the best model, unless a command has done so; announces what prevents it."""
        command, best = self.command, self.model
        if best is None or best.score is None:
            return
        run_id = command.delivery.delivered_run(log := self.store.log(best))
        if run_id not in command.ledger.registered_runs and not self.kept.has_model(best):
            self.engine.reporter.note(f"{UNREGISTERED}: that of {best.label} was not kept; {HOW_TO_KEEP}")
        elif run_id is None:
            self.engine.reporter.note(f"{UNREGISTERED}: the log {log} is not in MLflow; {AGAIN}")
        elif run_id not in command.ledger.registered_runs:
            folder = self.store.folder(best)
            text = register_best(command.tracker, self.plan, best, folder, run_id, command.stop)
            command.ledger.append("registered", key=best.key, text=text, run=run_id)

    def clean(self) -> None:
        """Removes models and embeddings that the job does not keep, if the sweep is complete."""
        ledger, model = self.command.ledger, self.model
        if ledger.state is not State.COMPLETE:
            return
        best = self.report(State.COMPLETE, "").best_training
        waits = model is not None and model.key not in ledger.registered
        self.kept.clean(
            [training.key for training in (best, model if waits else None) if training is not None]
        )

    def report(self, state: State, reason: str, undelivered: int = 0) -> SweepResult:
        """Returns the result of the sweep so far; `undelivered` is the number of logs that MLflow lacks."""
        ledger, model = self.command.ledger, self.model
        results = [search_result(search, self.raced.get(search.scope, []), ledger) for search in self.plans]
        return self.reader.result(
            state,
            reason,
            self.confirmed,
            arms=arm_results(self.plans, results),
            model="" if model is None else model.key,
            spent=self.command.account.used_text(),
            undelivered=undelivered,
        )
