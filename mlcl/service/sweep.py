"""A sweep: search a space, confirm on fresh seeds, say what came out; or go on with where it was."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

from mlflow.exceptions import MlflowException
from optuna.storages import BaseStorage

from mlcl.config import Goal, job_hash
from mlcl.errors import UserError
from mlcl.service.book import Book, Teller
from mlcl.service.budget import Account
from mlcl.service.confirm import Candidate, pareto
from mlcl.service.folders import RunFolder, RunFolders, RunRecord
from mlcl.service.generations import Generations, other_trials
from mlcl.service.halt import Halt
from mlcl.service.interrupt import StopRequest, stop_on_signal
from mlcl.service.ledger import Entry, Ledger
from mlcl.service.orphans import close_orphans
from mlcl.service.outcome import Confirmed, SweepReport, Trained
from mlcl.service.packing import Packing, nodes, pack
from mlcl.service.parent import ParentRun
from mlcl.service.progress import Reporter
from mlcl.service.pruning import Judge
from mlcl.service.retell import close_killed_sweep, log_id
from mlcl.service.session import ray_session
from mlcl.service.storage import hidden, open_storage
from mlcl.service.sweep_plan import SweepPlan, check_plan
from mlcl.service.sweep_session import SweepSession
from mlcl.service.watch import SweepEvent, Watcher
from mlcl.tracking import State, provenance, shown, tracking_uri
from mlcl.tracking.delivery import Delivery
from mlcl.tracking.store import Tracker
from mlcl.training.files import MODEL
from mlcl.training.material import Material

LOCK_PATIENCE = 5.0
"""Seconds that a killed command's processes may hold the sweep's folder."""

RUN_PATIENCE = 5.0
"""Seconds that the best trial's run may take to be there in MLflow, for the sweep's run to name it."""


def run_sweep(plan: SweepPlan, *, home: Path, watch: Watcher) -> SweepReport:
    """Searches, confirms, registers the best. Raises UserError before anything has been started."""
    material = check_plan(plan, home)
    tracker = Tracker(home)

    def announce(text: str) -> None:
        watch(SweepEvent("note", text))

    if plan.warm_start is not None:
        other_trials(home, plan.warm_start, _head(plan, material, home))
    if plan.study is not None:
        open_storage(plan.study)
    close_orphans(home, close_killed_sweep)
    folder = _folder(plan, home, material)
    with stop_on_signal(announce) as stop, folder.owned(LOCK_PATIENCE) as mine:
        if not mine:
            raise UserError("another command runs this sweep", key="--name", found=plan.name)
        with ray_session(cpus=_local_cpus(plan)):
            packing = _pack(plan)
            storage = open_storage(plan.study or folder.path / "study.journal")
            with Delivery(tracker, announce) as delivery:
                delivery.add_left()
                command = _Command(plan, material, tracker, folder, home, delivery, stop, watch)
                return command.run(packing, storage)


def _local_cpus(plan: SweepPlan) -> int:
    """CPUs that a Ray of this command's own must have: a job of two workers runs on any laptop."""
    workers = plan.job.train.workers
    return workers * max(1, math.ceil(plan.cpus)) if workers > 1 else 1


def _pack(plan: SweepPlan) -> Packing:
    return pack(
        nodes(),
        workers=plan.job.train.workers,
        cpus=plan.cpus,
        gpus=plan.gpus,
        device=plan.job.train.device,
        most=max(plan.most, plan.seeds),
    )


def _folder(plan: SweepPlan, home: Path, material: Material) -> RunFolder:
    """The folder of the sweep with the plan's name, or a new one. Raises UserError for another sweep's."""
    folders = RunFolders(home, "sweeps")
    folder = None if plan.fresh else folders.named(plan.name)
    if folder is None:
        return folders.new()
    head = Ledger(folder.path).head
    wanted = _identity(plan, material, home)
    for key, (what, text) in wanted.items():
        if head and head[key] != what:
            raise UserError(
                f"the sweep of this name has another {text}",
                key="--name",
                found=plan.name,
                allowed="another --name, or --fresh to begin anew",
            )
    return folder


def _identity(plan: SweepPlan, material: Material, home: Path) -> dict[str, tuple[object, str]]:
    """What a sweep keeps over all of its commands, and how it is called."""
    return {
        "job_hash": (job_hash(plan.job), "job"),
        "fingerprint": (material.fingerprint, "data set"),
        "scores": (list(plan.scores), "score, for its space has other goals or free keys"),
        "free": (list(plan.free), "set of free keys"),
        "modes": ([goal.mode for goal in plan.space.goals], "mode"),
        "study": (hidden(plan.study) if plan.study else "", "study storage"),
        "uri": (shown(tracking_uri(home)), "tracking store"),
        "scheduler": (_scheduler(plan), "scheduler"),
    }


def _head(plan: SweepPlan, material: Material, home: Path) -> dict[str, object]:
    return {key: what for key, (what, _) in _identity(plan, material, home).items()}


def _scheduler(plan: SweepPlan) -> list[object]:
    search = plan.space.search
    return [search.scheduler, search.grace, search.reduction_factor, search.startup]


@dataclass
class _Command:
    """One command on one sweep: whatever happens in it, nothing is left RUNNING."""

    plan: SweepPlan
    material: Material
    tracker: Tracker
    folder: RunFolder
    home: Path
    delivery: Delivery
    stop: StopRequest
    watch: Watcher
    undelivered: int = 0

    def run(self, packing: Packing, storage: BaseStorage) -> SweepReport:
        """Search, confirmation, report."""
        ledger = Ledger(self.folder.path)
        with self.stop.shielded():
            session = self._open(ledger, packing, storage)
        state, reason, confirmed = State.FAILED, "no trial is complete", list[Candidate]()
        try:
            session.search()
            confirmed = session.confirm()
            state, reason = self._state(session, reason)
        except KeyboardInterrupt:
            state, reason = State.STOPPED, ""
        except BaseException as error:
            reason = f"{type(error).__name__}: {error}"
            raise
        finally:
            with self.stop.shielded():
                self._conclude(session, state, reason)
        return self._report(session, state, reason, confirmed)

    def _open(self, ledger: Ledger, packing: Packing, storage: BaseStorage) -> SweepSession:
        """Takes the sweep up: ledger, study, logs."""
        plan, id, source = self.plan, self.folder.path.name, provenance()
        self._record(State.RUNNING)  # first, so that a kill leaves no folder that nobody finds
        if not ledger.head:
            head = _head(plan, self.material, self.home)
            ledger.append("sweep", id=id, name=plan.name, mode=plan.space.mode, **head)
        ledger.append("session", trials=plan.trials, seeds=plan.seeds, confirm=plan.confirm)
        parent = ParentRun(plan, id, self.home, self.tracker.uri, self.material, source)
        self.delivery.add(parent.log.id)
        unit = plan.budget.unit if plan.budget else "clock"
        account = Account(plan.budget, ledger.spent(unit))
        reporter = Reporter(ledger, account, plan.space.metric, plan.score, self.watch)
        reporter.note(f"sweep {id} ({plan.name}): score {plan.score} ({plan.space.mode})")
        generation, study = Generations(plan, ledger, storage, self.home).open(reporter.note)
        teller = Teller(id, self.home, self.tracker.uri, self.material, source, self.delivery.add)
        book = Book(ledger, self.folder.path, teller, plan.space, plan.scores)
        job = plan.search_job()
        judge = Judge(
            plan.space.search,
            plan.space.mode,
            epochs=job.train.epochs,
            every=job.evaluation.every,
            name=plan.name,
        )
        book.take_up(generation, study, judge)
        parent.asked(generation.number)
        parent.curve(ledger)
        halt = Halt(self.folder.path, self.stop, account, plan.space.search.max_failed)
        return SweepSession(plan, book, parent, packing, halt, account, reporter)

    def _record(self, state: State) -> None:
        record = self.folder.record
        name = self.folder.path.name
        self.folder.write(
            RunRecord(
                id=name,
                experiment=self.plan.job.experiment,
                job_hash=job_hash(self.plan.job),
                fingerprint=self.material.fingerprint,
                state=state,
                log=name,
                tracking_uri=shown(self.tracker.uri),
                created=record.created if record else name.split("-", 1)[1],
                name=self.plan.name,
            )
        )

    @staticmethod
    def _state(session: SweepSession, reason: str) -> tuple[State, str]:
        if session.halt.cause is not None:
            return session.halt.cause, session.halt.reason
        return (State.FAILED, reason) if session.best() is None else (State.COMPLETE, "")

    def _conclude(self, session: SweepSession, state: State, reason: str) -> None:
        """Every state is written down; then MLflow is waited for, and told which model is the best."""
        session.halt.clear()
        ended = State.BUDGET if state is State.BUDGET else State.STOPPED
        session.close_open(ended, "the sweep ended before it" if state is State.FAILED else "")
        ledger, best = session.book.ledger, session.best()
        ledger.append("end", state=state, reason=reason)
        run_id = None if best is None else self._run_id(best)
        session.parent.conclude(ledger, best, state, reason, run_id)
        self._record(state)
        session.reporter.end(f"sweep {ledger.head['id']} {state}")
        self.undelivered = self.delivery.drain(stop=self.stop)
        if best is not None and best.key not in ledger.registered and self.undelivered == 0:
            self._register(ledger, best)

    def _run_id(self, entry: Entry) -> str | None:
        """The entry's run in MLflow: delivery may be some moments behind."""
        patience = 0.0 if self.stop() else RUN_PATIENCE
        return self.delivery.wait_run_id(log_id(self.folder.path.name, entry.key), patience)

    def _register(self, ledger: Ledger, best: Entry) -> None:
        """Registers the best trial's model. A store that refuses it does not undo the sweep."""
        run_id = self.delivery.run_id(log_id(ledger.head["id"], best.key))
        if run_id is None or best.score is None:
            return
        plan = self.plan
        try:
            text = self.tracker.register(
                plan.job.experiment, run_id, MODEL, plan.score, best.score, plan.space.mode
            )
        except MlflowException as error:
            self.watch(SweepEvent("note", f"the best model is not registered: {error}"))
        else:
            ledger.append("registered", key=best.key, text=text)

    def _report(
        self, session: SweepSession, state: State, reason: str, confirmed: list[Candidate]
    ) -> SweepReport:
        ledger, plan = session.book.ledger, self.plan
        best, trials = session.best(), ledger.counted()
        front = pareto(trials, plan.space.goals) if plan.space.multi else []
        return SweepReport(
            id=ledger.head["id"],
            name=plan.name,
            state=state,
            reason=reason,
            folder=self.folder.path,
            goals=tuple(
                Goal(name, goal.mode) for name, goal in zip(plan.scores, plan.space.goals, strict=True)
            ),
            score=plan.score,
            mode=plan.space.mode,
            trials=tuple(self._trained(ledger, trial) for trial in trials),
            best=None if best is None else self._trained(ledger, best),
            front=tuple(self._trained(ledger, trial) for trial in front),
            confirmations=tuple(self._confirmed(ledger, candidate) for candidate in confirmed),
            registered="" if best is None else ledger.registered.get(best.key, ""),
            spent=session.account.used_text(),
            undelivered=self.undelivered,
            run_id=self.delivery.run_id(ledger.head["id"]),
        )

    def _confirmed(self, ledger: Ledger, candidate: Candidate) -> Confirmed:
        seeds = tuple(self._trained(ledger, entry) for entry in ledger.seeds_of(candidate.key))
        state, _ = ledger.group_states[candidate.key]
        run_id = self.delivery.run_id(log_id(ledger.head["id"], candidate.key))
        return Confirmed(candidate.key, candidate.label, state, candidate.settings, seeds, run_id)

    def _trained(self, ledger: Ledger, entry: Entry) -> Trained:
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
            seconds=entry.seconds,
            run_id=self.delivery.run_id(log_id(ledger.head["id"], entry.key)),
        )
