"""One command on one sweep or table: what it holds while it works, and how it ends.

with open_command(subject, home, watch, find, count) as command:    # lock, Ray, delivery to MLflow
    with command.start(identity, asked): ...                       # logs and study as the ledger says
    with command.work(reporter, conclude) as end: ...                   # trains; `end` gets state and reason
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from mlcl.config import JobConfig
from mlcl.errors import UserError
from mlcl.files import locked, remove_partial
from mlcl.service.engine.budget import Account, Budget, Forecasts
from mlcl.service.engine.closing import write_end
from mlcl.service.engine.engine import Engine
from mlcl.service.engine.entries import End
from mlcl.service.engine.ledger import Ledger
from mlcl.service.engine.packing import Packing, Resources
from mlcl.service.engine.progress import ProgressEvent, ProgressListener, Reporter, steady
from mlcl.service.engine.recovery import backed_up, close_trainings, recover
from mlcl.service.engine.stop_conditions import STOP_FILE, StopConditions
from mlcl.service.process.signals import StopRequest, stop_on_signal
from mlcl.service.process.stderr import stderr_to_file
from mlcl.service.ray.session import ray_session
from mlcl.store import RunFolder, RunRecord, State
from mlcl.tracking import RunLog, provenance
from mlcl.tracking.delivery import Delivery
from mlcl.tracking.job_logs import JobLogs
from mlcl.tracking.names import MAX_REASON, Tag
from mlcl.tracking.provenance import code
from mlcl.tracking.tracker import Tracker

LOCK_PATIENCE = 5.0
"""Seconds that a killed command's processes may hold the folder."""


@dataclass(frozen=True)
class Subject:
    """The sweep or table that a command is about.

    `kind` is `sweep` or `table`, `option` the one that gives its `name`. `job` stands for all jobs in what
    they share: workers and device. `job_hash` and `fingerprint` go into the record.
    """

    kind: str
    option: str
    name: str
    experiment: str
    job_hash: str
    fingerprint: str
    job: JobConfig
    resources: Resources


@dataclass
class CommandEnd:
    """The end of a command: its state with the reason, and the number of logs that MLflow does not have."""

    state: State = State.FAILED
    reason: str = ""
    undelivered: int = 0


@dataclass(frozen=True)
class Command:
    """A command on a sweep or table that holds its folder, with a Ray session and a delivery that run."""

    subject: Subject
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
        """The budget, with the use of earlier commands."""
        return Account(self.budget, self.ledger)

    @property
    def record(self) -> RunRecord:
        """The record of the folder, which `start` writes."""
        record = self.folder.record
        assert record is not None
        return record

    def engine(self, reporter: Reporter, max_failed: int | None, *, models: bool = True) -> Engine:
        """The engine on which sources run; more failures in a row than `max_failed` stop it."""
        return Engine(
            ledger=self.ledger,
            home=self.logs.home,
            packing=self.packing,
            stop=StopConditions(self.folder.path, self.stop, self.account, max_failed),
            reporter=reporter,
            forecasts=Forecasts(self.account, self.packing.concurrent, reporter.note),
            safe=self.tracker.safe,
            models=models,
        )

    @contextmanager
    def start(
        self, identity: Mapping[str, object], asked: Mapping[str, object], log: str | None = None
    ) -> Iterator[None]:
        """Writes record and head, then lets the block bring logs and study to what the ledger says.

        `identity` is what all commands on it agree in, `asked` what this one was asked for, `log` the id of
        its own log, by default its id. Where the block fails, all of it is FAILED.
        """
        with self.stop.shielded():
            try:
                self._open(identity, asked, log or self.folder.path.name)
                yield
                if len(self.ledger.codes) > 1:
                    codes: dict[str, str] = {Tag.CODE: ", then ".join(self.ledger.codes)}
                    RunLog.attach(self.logs.home, self.record.log).tags(codes)
            except Exception as error:
                self._give_up(self.reason(error))
                raise

    def _open(self, identity: Mapping[str, object], asked: Mapping[str, object], log: str) -> None:
        subject, id = self.subject, self.folder.path.name
        self.folder.open(  # first: a kill leaves no folder without a record
            experiment=subject.experiment,
            job_hash=subject.job_hash,
            fingerprint=subject.fingerprint,
            log=log,
            uri=self.logs.stored_uri,
            name=subject.name,
        )
        if not self.ledger.head:
            self.ledger.append(subject.kind, id=id, name=subject.name, **identity)
        self.ledger.append("session", code=code(), **asked)

    def _give_up(self, reason: str) -> None:
        """Closes everything after an error at the start; a later command may try again."""
        record = self.folder.record
        if record is None:
            return
        if self.ledger.head:
            self.ledger.append("end", state=State.FAILED, reason=reason)
            close_trainings(self.logs.home, self.ledger, reason)
        log = RunLog.find(self.logs.home, record.log)
        write_end(End(State.FAILED, reason), log, self.folder.path, run=self.folder)
        self.delivery.drain(stop=self.stop)

    @contextmanager
    def work(
        self, reporter: Reporter, conclude: Callable[[State, str], None] = lambda _state, _reason: None
    ) -> Iterator[CommandEnd]:
        """Writes how the block ended, whatever happens; then waits for MLflow.

        The block sets state and reason; an exception is FAILED, Ctrl-C is STOPPED. `conclude` is called with
        both before they are written to the log of the sweep or table.
        """
        end = CommandEnd()
        try:
            yield end
        except KeyboardInterrupt:
            end.state, end.reason = State.STOPPED, ""
            raise
        except BaseException as error:
            end.state, end.reason = State.FAILED, self.reason(error)
            raise
        finally:
            with self.stop.shielded():
                self.ledger.append("end", state=end.state, reason=end.reason)
                conclude(end.state, end.reason)
                log = RunLog.find(self.logs.home, self.record.log)
                write_end(End(end.state, end.reason), log, self.folder.path, run=self.folder)
                reporter.end(f"{self.subject.kind} {self.subject.name} {end.state}")
                end.undelivered = self.delivery.drain(stop=self.stop)

    def reason(self, error: BaseException) -> str:
        """An error as the reason of a state, without secrets."""
        return self.tracker.safe(f"{type(error).__name__}: {error}")[:MAX_REASON]


@contextmanager
def open_command(
    subject: Subject,
    home: Path,
    watch: ProgressListener,
    find: Callable[[], RunFolder],
    count: Callable[[Ledger, Callable[[str], None]], int],
    *,
    strict_code: bool = False,
) -> Iterator[Command]:
    """Holds the folder of a sweep or table, a Ray and the delivery to MLflow while the context is open.

    Args:
        find: The folder that the command goes on with, or a new one; called while no other command of this
            name can begin.
        count: How many trainings there will be at most; without any, no Ray is started.
        strict_code: Refuses to go on where the command before ran other code, which is said otherwise.

    Raises:
        UserError: Before anything has been started.
    """
    watch = steady(watch)

    def announce(text: str) -> None:
        watch(ProgressEvent("note", text))

    with ExitStack() as held:
        aside = held.enter_context(stderr_to_file())
        tracker = Tracker(home)
        tracker.experiment(subject.experiment)
        recover(home)
        stop = held.enter_context(stop_on_signal(announce))
        held.enter_context(backed_up(home, announce))
        folder = held.enter_context(_held(home, subject, find, aside))
        ledger = Ledger(folder.path)
        _check_code(ledger, announce, strict_code)
        packing = held.enter_context(_cluster(subject, count(ledger, announce), home, announce))
        delivery = held.enter_context(Delivery(tracker, announce))
        delivery.add_undelivered()
        yield Command(
            subject=subject,
            folder=folder,
            ledger=ledger,
            logs=JobLogs(home, tracker.uri, provenance(), delivery.add),
            packing=packing,
            budget=subject.resources.budget,
            tracker=tracker,
            delivery=delivery,
            stop=stop,
            watch=watch,
        )


@contextmanager
def _held(
    home: Path, subject: Subject, find: Callable[[], RunFolder], aside: Callable[[Path], None]
) -> Iterator[RunFolder]:
    """The folder, held so that others know that its command lives.

    Nothing is left of one not begun: what libraries wrote goes to the home where it failed.
    """
    kind, name = subject.kind, subject.name
    # By its name first: two commands that begin a sweep of one name at once must not make two.
    with locked(home / f"{kind}s" / f".{name}.lock", LOCK_PATIENCE) as free:
        if not free:
            raise UserError(f"another command runs this {kind}", key=subject.option, found=name)
        folder = find()
        with folder.owned(LOCK_PATIENCE) as mine:
            if not mine:
                raise UserError(f"another process holds this {kind}", key=subject.option, found=name)
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


def _check_code(ledger: Ledger, announce: Callable[[str], None], strict: bool) -> None:
    """Says where the last command ran other code; if `strict`, raises UserError."""
    codes, present = ledger.codes, code()
    if codes and codes[-1] != present:
        if strict:
            raise UserError("the code has changed", key="--strict-code", found=present, allowed=codes[-1])
        announce(f"the code has changed since the last command: {codes[-1]}, now {present}")


def _tidy(folder: Path) -> None:
    """Removes what ended processes left: Ray's scratch, requests to stop, partial files."""
    for scratch in [*folder.glob("ray-*"), *folder.glob("trials/*/ray")]:
        shutil.rmtree(scratch, ignore_errors=True)
    for request in folder.glob(f"trials/*/{STOP_FILE}"):
        request.unlink(missing_ok=True)
    remove_partial(folder)


@contextmanager
def _cluster(subject: Subject, most: int, home: Path, announce: Callable[[str], None]) -> Iterator[Packing]:
    """A Ray, and how many trainings fit into it at once; none where there is nothing to train."""
    if most == 0:
        yield Packing(0, subject.resources.cpus, 0.0, subject.job.train.workers)
        return
    with ray_session(home, subject.resources.local_cpus(subject.job), announce):
        yield subject.resources.pack(subject.job, most)
