"""A sweep: search a space, confirm on fresh seeds, say what came out; or go on with where it was."""

from __future__ import annotations

import math
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from mlflow.exceptions import MlflowException
from optuna.storages import BaseStorage

from mlcl.config import job_hash
from mlcl.errors import UserError
from mlcl.service.engine.budget import Account
from mlcl.service.engine.ledger import Entry, Ledger
from mlcl.service.engine.packing import Packing, nodes, pack
from mlcl.service.engine.progress import Reporter
from mlcl.service.engine.progress_events import ProgressEvent, ProgressListener, steady
from mlcl.service.engine.state_sync import close_killed_sweep, log_id
from mlcl.service.engine.stop_conditions import STOP_FILE, StopConditions
from mlcl.service.engine.trial_logs import TrialLogs
from mlcl.service.engine.trial_recorder import TrialRecorder
from mlcl.service.runs.crash_recovery import close_orphans
from mlcl.service.runs.ray_session import on_cluster, ray_session
from mlcl.service.runs.run_store import RunFolder, RunRecord, now
from mlcl.service.runs.signals import StopRequest, stop_on_signal
from mlcl.service.search.confirmation import Candidate
from mlcl.service.search.pruner import ReplayPruner
from mlcl.service.search.space_versions import SpaceVersions, warm_sweep
from mlcl.service.search.study_storage import open_storage
from mlcl.service.search.summary import SweepReport
from mlcl.service.search.sweep_identity import sweep_folder, sweep_identity
from mlcl.service.search.sweep_plan import SweepPlan, check_plan
from mlcl.service.search.sweep_report import SweepReader
from mlcl.service.search.sweep_run import SweepRun
from mlcl.service.search.sweep_session import SweepSession
from mlcl.tracking import RunLog, State, provenance, shown
from mlcl.tracking.atomic_files import locked
from mlcl.tracking.delivery import Delivery
from mlcl.tracking.names import MAX_REASON
from mlcl.tracking.tracker import Tracker
from mlcl.tracking.undelivered import owned_by
from mlcl.training.files import MODEL
from mlcl.training.job_data import JobData

LOCK_PATIENCE = 5.0
"""Seconds that a killed command's processes may hold the sweep's folder."""

RUN_PATIENCE = 5.0
"""Seconds that the best trial's run may take to be there in MLflow, for the sweep's run to name it."""


def run_sweep(plan: SweepPlan, *, home: Path, watch: ProgressListener) -> SweepReport:
    """Searches, confirms, registers the best. Raises UserError before anything has been started."""
    job_data = check_plan(plan, home)
    tracker = Tracker(home)
    watch = steady(watch)

    def announce(text: str) -> None:
        watch(ProgressEvent("note", text))

    tracker.experiment(plan.job.experiment)
    identity = sweep_identity(plan, job_data, home)
    if plan.warm_start is not None:
        # By its id from here on: a name may come to mean another sweep, with --fresh this one.
        plan = replace(plan, warm_start=warm_sweep(home, plan.warm_start, identity))
    if plan.study is not None:
        open_storage(plan.study)
    close_orphans(home, close_killed_sweep)
    with stop_on_signal(announce) as stop, _named(home, plan.name):
        folder = sweep_folder(plan, home, identity)
        if plan.warm_start == folder.path.name:
            raise UserError("a sweep has its own trials already", key="--warm-start", found=plan.name)
        with _held(folder, plan.name), ray_session(home, _local_cpus(plan), announce):
            packing = _pack(plan)
            storage = open_storage(plan.study or folder.path / "study.journal")
            with Delivery(tracker, announce) as delivery:
                delivery.add_left()
                command = _Command(plan, job_data, tracker, folder, home, delivery, stop, watch, identity)
                return command.run(packing, storage)


@contextmanager
def _named(home: Path, name: str) -> Iterator[None]:
    """Two commands that begin a sweep of one name at once must not make two."""
    with locked(home / "sweeps" / f".{name}.lock", LOCK_PATIENCE) as free:
        if not free:
            raise UserError("another command runs this sweep", key="--name", found=name)
        yield


@contextmanager
def _held(folder: RunFolder, name: str) -> Iterator[None]:
    """Holds the folder, so that others know that its command lives. Nothing is left of one not begun."""
    with folder.owned(LOCK_PATIENCE) as mine:
        if not mine:
            raise UserError("another process holds this sweep", key="--name", found=name)
        _tidy(folder.path)  # after a command that was killed
        try:
            yield
        finally:
            _tidy(folder.path)
            if folder.record is None:
                shutil.rmtree(folder.path, ignore_errors=True)


def _tidy(folder: Path) -> None:
    """Takes away what processes that were ended from outside could not: Ray's scratch, requests to stop."""
    for scratch in [*folder.glob("ray-*"), *folder.glob("trials/*/ray")]:
        shutil.rmtree(scratch, ignore_errors=True)
    for request in folder.glob(f"trials/*/{STOP_FILE}"):
        request.unlink(missing_ok=True)


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
        most=max(plan.most, plan.seeds * (1 + plan.confirm + len(plan.baselines))),
        parallel=plan.parallel,
        grows=on_cluster(),
    )


@dataclass
class _Command:
    """One command on one sweep: whatever happens in it, nothing is left RUNNING."""

    plan: SweepPlan
    job_data: JobData
    tracker: Tracker
    folder: RunFolder
    home: Path
    delivery: Delivery
    stop: StopRequest
    watch: ProgressListener
    identity: dict[str, object]
    undelivered: int = 0

    def run(self, packing: Packing, storage: BaseStorage) -> SweepReport:
        """Search, confirmation, report."""
        ledger = Ledger(self.folder.path)
        try:
            with self.stop.shielded():
                session = self._open(ledger, packing, storage)
        except Exception as error:
            self._give_up(ledger, self._reason(error))
            raise
        state, reason, confirmed = State.FAILED, "no trial is complete", list[Candidate]()
        try:
            session.search()
            confirmed = session.confirm()
            state, reason = self._state(session, reason)
        except KeyboardInterrupt:
            state, reason = State.STOPPED, ""
        except BaseException as error:
            reason = self._reason(error)
            raise
        finally:
            with self.stop.shielded():
                self._conclude(session, state, reason)
        reading = SweepReader(self.plan, self.folder.path, ledger, self.delivery.run_id)
        spent = session.account.used_text()
        return reading.report(state, reason, confirmed, spent=spent, undelivered=self.undelivered)

    def _reason(self, error: BaseException) -> str:
        return self.tracker.safe(f"{type(error).__name__}: {error}")[:MAX_REASON]

    def _give_up(self, ledger: Ledger, reason: str) -> None:
        """The sweep could not be taken up: it is FAILED, and a later command may try again."""
        if ledger.head:
            ledger.append("end", state=State.FAILED, reason=reason)
        for id in owned_by(self.home, self.folder.path.name):
            log = RunLog.attach(self.home, id)
            if log.state is State.RUNNING:
                log.finish(State.FAILED if id == self.folder.path.name else State.STOPPED, reason)
        self._record(State.FAILED)
        self.delivery.drain(stop=self.stop)

    def _open(self, ledger: Ledger, packing: Packing, storage: BaseStorage) -> SweepSession:
        """Takes the sweep up: ledger, study, logs."""
        plan, id, source = self.plan, self.folder.path.name, provenance()
        self._record(State.RUNNING)  # first, so that a kill leaves no folder that nobody finds
        if not ledger.head:
            ledger.append("sweep", id=id, name=plan.name, **self.identity)
        ledger.append("session", trials=plan.trials, seeds=plan.seeds, confirm=plan.confirm)
        parent = SweepRun(plan, id, self.home, self.tracker.uri, self.job_data, source)
        self.delivery.add(parent.log.id)
        unit = plan.budget.unit if plan.budget else "clock"
        account = Account(plan.budget, ledger.spent(unit))
        reporter = Reporter(ledger, account, plan.space.metric, plan.score, self.watch)
        reporter.note(f"sweep {id} ({plan.name}): score {plan.score} ({plan.space.mode})")
        generation, study = SpaceVersions(plan, ledger, storage, self.home).open(reporter.note)
        trial_logs = TrialLogs(id, self.home, self.tracker.uri, self.job_data, source, self.delivery.add)
        recorder = TrialRecorder(ledger, self.folder.path, trial_logs, plan.space, plan.scores)
        job = plan.search_job()
        pruner = ReplayPruner(
            plan.space.search,
            plan.space.mode,
            epochs=job.train.epochs,
            every=job.evaluation.every,
            name=plan.name,
        )
        recorder.take_up(generation, study, pruner)
        parent.asked(generation.number)
        parent.curve(ledger)
        halt = StopConditions(self.folder.path, self.stop, account, plan.space.search.max_failed)
        return SweepSession(plan, recorder, parent, packing, halt, account, reporter)

    def _record(self, state: State) -> None:
        record = self.folder.record
        name = self.folder.path.name
        self.folder.write(
            RunRecord(
                id=name,
                experiment=self.plan.job.experiment,
                job_hash=job_hash(self.plan.job),
                fingerprint=self.job_data.fingerprint,
                state=state,
                log=name,
                tracking_uri=shown(self.tracker.uri),
                created=record.created if record else now(),
                name=self.plan.name,
            )
        )

    @staticmethod
    def _state(session: SweepSession, reason: str) -> tuple[State, str]:
        # An end that was asked for when everything was there changes nothing.
        if session.halt.cause is not None and not session.finished():
            return session.halt.cause, session.halt.reason
        return (State.FAILED, reason) if session.best() is None else (State.COMPLETE, "")

    def _conclude(self, session: SweepSession, state: State, reason: str) -> None:
        """Every state is written down; then MLflow is waited for, and told which model is the best."""
        session.halt.clear()
        try:
            session.close_open()
        except Exception as error:
            session.reporter.note(
                f"not everything could be told ({self._reason(error)}); the next command does"
            )
        ledger, best = session.recorder.ledger, session.best()
        ledger.append("end", state=state, reason=reason)
        run_id = None if best is None else self._run_id(best)
        spent = session.account.used_text()
        session.parent.conclude(ledger, best, state, reason, run_id=run_id, spent=spent)
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
            self.watch(ProgressEvent("note", f"the best model is not registered: {self._reason(error)}"))
        else:
            ledger.append("registered", key=best.key, text=text)
