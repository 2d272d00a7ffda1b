"""One command on one sweep or table, from its lock to its report: what both have in common."""

from __future__ import annotations

import shutil
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Generic, Protocol, TypeVar

from mlcl.config import JobConfig
from mlcl.errors import UserError
from mlcl.files import locked, remove_partial
from mlcl.service.engine.budget import Account, Budget, Forecasts
from mlcl.service.engine.ledger import Ledger
from mlcl.service.engine.packing import Packing, Resources
from mlcl.service.engine.progress import ProgressEvent, ProgressListener, Reporter, steady
from mlcl.service.engine.recovery import backed_up, recover
from mlcl.service.engine.session import Engine
from mlcl.service.engine.stop_conditions import STOP_FILE, StopConditions
from mlcl.service.runs.foreign_output import foreign_output_apart
from mlcl.service.runs.job_logs import JobLogs
from mlcl.service.runs.ray_session import ray_session
from mlcl.service.runs.signals import StopRequest, stop_on_signal
from mlcl.store import RunFolder
from mlcl.tracking import RunLog, State, provenance
from mlcl.tracking.delivery import Delivery
from mlcl.tracking.names import MAX_REASON, Tag
from mlcl.tracking.provenance import code
from mlcl.tracking.tracker import Tracker
from mlcl.tracking.undelivered import owned_by

LOCK_PATIENCE = 5.0
"""Seconds that a killed command's processes may hold the folder."""


class Outcome(Protocol):
    """What a command reports in the end."""

    @property
    def state(self) -> State:
        """COMPLETE, FAILED, BUDGET or STOPPED."""

    @property
    def reason(self) -> str:
        """Why it is not complete."""


R = TypeVar("R", bound=Outcome)


class Work(ABC, Generic[R]):
    """A sweep or a table that a command has taken up."""

    engine: Engine

    @abstractmethod
    def train(self) -> None:
        """Runs its sources on the engine."""

    @abstractmethod
    def outcome(self) -> R:
        """What has come out, once all trainings have ended or were interrupted."""

    @abstractmethod
    def conclude(self, state: State, reason: str) -> None:
        """Writes what came out, and the state, to its own log."""

    def delivered(self) -> None:
        """MLflow has everything."""

    @abstractmethod
    def report(self, outcome: R, undelivered: int) -> R:
        """The outcome as it is at the end; `undelivered` logs wait for an MLflow that answers."""


class Task(ABC, Generic[R]):
    """What is to be done to which sweep or table.

    `kind` is `sweep` or `table`, `option` the one that gives its `name`. `job` stands for all jobs in what
    they share: workers and device. `job_hash` and `fingerprint` go into the record, `identity` into the
    ledger's head, `asked` into the event of this session.
    """

    kind: str
    option: str
    name: str
    experiment: str
    job_hash: str
    fingerprint: str
    job: JobConfig
    resources: Resources
    identity: Mapping[str, object]
    asked: Mapping[str, object]

    def prepare(self) -> None:
        """Checks that need the store or the home. Raises UserError; nothing has been started."""

    @abstractmethod
    def folder(self) -> RunFolder:
        """The folder that the command goes on with, or a new one. Raises UserError for another's."""

    @abstractmethod
    def most(self, folder: RunFolder, announce: Callable[[str], None]) -> int:
        """How many trainings there will be at most; without any, no Ray is started."""

    def log_id(self, id: str, logs: JobLogs) -> str:  # noqa: ARG002
        """The id of the sweep's or table's own log."""
        return id

    @abstractmethod
    def take_up(self, command: Command) -> Work[R]:
        """Brings logs, records and the study to what the ledger says."""


@dataclass(frozen=True)
class Command:
    """What a command works with: its folder is held, Ray and the delivery run."""

    folder: RunFolder
    ledger: Ledger
    logs: JobLogs
    packing: Packing
    budget: Budget | None
    tracker: Tracker
    delivery: Delivery
    stop: StopRequest
    watch: ProgressListener

    @cached_property
    def account(self) -> Account:
        """Counts on from what earlier commands have spent."""
        return Account(self.budget, self.ledger.spent(self.budget.unit if self.budget else "clock"))

    def engine(self, reporter: Reporter, max_failed: int | None) -> Engine:
        """The engine on which sources run; more failures in a row than `max_failed` stop it."""
        return Engine(
            ledger=self.ledger,
            home=self.logs.home,
            packing=self.packing,
            stop=StopConditions(self.folder.path, self.stop, self.account, max_failed),
            account=self.account,
            reporter=reporter,
            forecasts=Forecasts(self.account, self.packing.concurrent, reporter.note),
            safe=self.tracker.safe,
        )


def run_command(task: Task[R], home: Path, watch: ProgressListener, *, strict_code: bool = False) -> R:
    """Takes the sweep or table up, trains, concludes. Raises UserError before anything has been started.

    With `strict_code` also where the command before ran other code, which is said otherwise.
    """
    with foreign_output_apart() as aside:
        return _run_command(task, home, watch, strict_code, aside)


def _run_command(
    task: Task[R], home: Path, watch: ProgressListener, strict_code: bool, aside: Callable[[Path], None]
) -> R:
    tracker = Tracker(home)
    watch = steady(watch)

    def announce(text: str) -> None:
        watch(ProgressEvent("note", text))

    tracker.experiment(task.experiment)
    task.prepare()
    recover(home)
    with stop_on_signal(announce) as stop, backed_up(home, announce), _held(home, task, aside) as folder:
        _check_code(folder, announce, strict_code)
        with _cluster(task, folder, home, announce) as packing, Delivery(tracker, announce) as delivery:
            delivery.add_undelivered()
            command = Command(
                folder=folder,
                ledger=Ledger(folder.path),
                logs=JobLogs(home, tracker.uri, provenance(), delivery.add),
                packing=packing,
                budget=task.resources.budget,
                tracker=tracker,
                delivery=delivery,
                stop=stop,
                watch=watch,
            )
            return _train(task, command)


@contextmanager
def _held(home: Path, task: Task[R], aside: Callable[[Path], None]) -> Iterator[RunFolder]:
    """The folder, held so that others know that its command lives.

    Nothing is left of one not begun: what libraries wrote goes to the home where it failed.
    """
    # By its name first: two commands that begin a sweep of one name at once must not make two.
    with locked(home / f"{task.kind}s" / f".{task.name}.lock", LOCK_PATIENCE) as free:
        if not free:
            raise UserError(f"another command runs this {task.kind}", key=task.option, found=task.name)
        folder = task.folder()
        with folder.owned(LOCK_PATIENCE) as mine:
            if not mine:
                raise UserError(f"another process holds this {task.kind}", key=task.option, found=task.name)
            _tidy(folder.path)  # after a command that was killed
            aside(folder.path)
            try:
                yield folder
            except Exception as error:
                if folder.record is None and not isinstance(error, UserError):
                    aside(home)
                raise
            finally:
                _tidy(folder.path)
                if folder.record is None:
                    shutil.rmtree(folder.path, ignore_errors=True)


def _check_code(folder: RunFolder, announce: Callable[[str], None], strict: bool) -> None:
    """Says where the last command ran other code; if `strict`, raises UserError."""
    codes, present = Ledger(folder.path).codes, code()
    if codes and codes[-1] != present:
        if strict:
            raise UserError("the code has changed", key="--strict-code", found=present, allowed=codes[-1])
        announce(f"the code has changed since the last command: {codes[-1]}, now {present}")


def _tidy(folder: Path) -> None:
    """Takes away what ended processes left: Ray's scratch, requests to stop, partial files."""
    for scratch in [*folder.glob("ray-*"), *folder.glob("trials/*/ray")]:
        shutil.rmtree(scratch, ignore_errors=True)
    for request in folder.glob(f"trials/*/{STOP_FILE}"):
        request.unlink(missing_ok=True)
    remove_partial(folder)


@contextmanager
def _cluster(
    task: Task[R], folder: RunFolder, home: Path, announce: Callable[[str], None]
) -> Iterator[Packing]:
    """A Ray, and how many trainings fit into it at once; none where there is nothing to train."""
    most = task.most(folder, announce)
    if most == 0:
        yield Packing(0, task.resources.cpus, 0.0, task.job.train.workers)
        return
    with ray_session(home, task.resources.local_cpus(task.job), announce):
        yield task.resources.pack(task.job, most)


def _train(task: Task[R], command: Command) -> R:
    """Takes up, trains, concludes. Whatever happens, nothing is left RUNNING."""
    state, reason, undelivered = State.FAILED, "", 0
    try:
        with command.stop.shielded():
            work = _take_up(task, command)
    except Exception as error:
        _give_up(command, _reason(command, error))
        raise
    try:
        work.train()
        outcome = work.outcome()
        state, reason = outcome.state, outcome.reason
    except KeyboardInterrupt:
        state = State.STOPPED
        raise
    except BaseException as error:
        reason = _reason(command, error)
        raise
    finally:
        with command.stop.shielded():
            undelivered = _conclude(task, command, work, state, reason)
    return work.report(outcome, undelivered)


def _take_up(task: Task[R], command: Command) -> Work[R]:
    ledger, id = command.ledger, command.folder.path.name
    record = command.folder.open(  # first: a kill leaves no folder without a record
        experiment=task.experiment,
        job_hash=task.job_hash,
        fingerprint=task.fingerprint,
        log=task.log_id(id, command.logs),
        uri=command.logs.stored_uri,
        name=task.name,
    )
    if not ledger.head:
        ledger.append(task.kind, id=id, name=task.name, **task.identity)
    ledger.append("session", code=code(), **task.asked)
    work = task.take_up(command)
    if len(ledger.codes) > 1:
        RunLog.attach(command.logs.home, record.log).tags({Tag.CODE: ", then ".join(ledger.codes)})
    return work


def _reason(command: Command, error: BaseException) -> str:
    return command.tracker.safe(f"{type(error).__name__}: {error}")[:MAX_REASON]


def _give_up(command: Command, reason: str) -> None:
    """It could not be taken up: it is FAILED, and a later command may try again."""
    record = command.folder.record
    if record is None:
        return
    if command.ledger.head:
        command.ledger.append("end", state=State.FAILED, reason=reason)
    for id in owned_by(command.logs.home, record.id):
        log = RunLog.attach(command.logs.home, id)
        if log.state is State.RUNNING:
            log.finish(State.FAILED if id == record.log else State.STOPPED, reason)
    command.folder.set_state(State.FAILED)
    command.delivery.drain(stop=command.stop)


def _conclude(task: Task[R], command: Command, work: Work[R], state: State, reason: str) -> int:
    """Every state is written down; then MLflow is waited for. Returns how many logs it has not got."""
    command.ledger.append("end", state=state, reason=reason)
    work.conclude(state, reason)
    command.folder.set_state(state)
    work.engine.reporter.end(f"{task.kind} {task.name} {state}")
    undelivered = command.delivery.drain(stop=command.stop)
    if undelivered == 0:
        work.delivered()
    return undelivered
