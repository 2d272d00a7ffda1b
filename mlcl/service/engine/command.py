"""Runs one command on one sweep or table: locks it, opens Ray and the delivery to MLflow, writes its end.

with open_command(subject, home, watch, find, count) as command:    # lock, Ray, delivery to MLflow
    with command.start(identity, asked): ...                       # the block brings the logs up to date
    with command.work(reporter, conclude) as end: ...                   # trains; `end` gets state and reason
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from mlcl.config import JobConfig
from mlcl.errors import UserError
from mlcl.files import lock_file, remove_partial
from mlcl.service.engine.budget import Account, Forecasts
from mlcl.service.engine.closing import backed_up, close_trainings, recover, write_end
from mlcl.service.engine.encoding import Work, encode_ahead
from mlcl.service.engine.engine import Engine, StopConditions
from mlcl.service.engine.entries import End
from mlcl.service.engine.ledger import Ledger
from mlcl.service.engine.packing import Packing, Resources
from mlcl.service.engine.progress import (
    ProgressEvent,
    ProgressListener,
    Reporter,
    guard_listener,
    notify,
    resolve_target,
)
from mlcl.service.process.signals import STOP_FILE, StopRequest, stop_on_signal
from mlcl.service.process.stderr import stderr_to_file
from mlcl.service.ray.session import ray_session
from mlcl.store import RunFolder, RunRecord, State
from mlcl.tracking import RunLog, provenance
from mlcl.tracking.cursor import Cursor
from mlcl.tracking.delivery import Delivery
from mlcl.tracking.job_logs import JobLogs
from mlcl.tracking.names import MAX_REASON
from mlcl.tracking.provenance import code
from mlcl.tracking.tracker import Tracker

LOCK_PATIENCE = 5.0
"""Seconds to wait for the lock of a folder, which processes of a killed command may still hold."""


@dataclass(frozen=True)
class Subject:
    """The sweep or table that a command is about.

    `kind` is `sweep` or `table`, and `option` is the command-line option that gives its `name`. `job` is any
    of its jobs: only workers, device and `tracking.notify` are read from it, which are equal in all jobs.
    `written` is a folder for results; changes in it do not count as uncommitted changes of the code.
    """

    kind: str
    option: str
    name: str
    experiment: str
    job_hash: str
    fingerprint: str
    job: JobConfig
    resources: Resources
    written: Path | None = None


@dataclass
class CommandEnd:
    """The end of a command: state, reason, verdicts, and the number of logs not yet delivered to MLflow."""

    state: State = State.FAILED
    reason: str = ""
    verdict: str = ""
    undelivered: int = 0


@dataclass(frozen=True)
class Command:
    """A running command on a sweep or table, which holds the folder's lock, a Ray session and a delivery.

    `watch` receives the progress events. `notified` is the URL to which the end is posted, None for none.
    """

    subject: Subject
    folder: RunFolder
    ledger: Ledger
    logs: JobLogs
    packing: Packing
    tracker: Tracker
    delivery: Delivery
    stop: StopRequest
    watch: ProgressListener
    notified: str | None = None

    @cached_property
    def account(self) -> Account:
        """The account of the budget, which includes the time that earlier commands used."""
        return Account(self.subject.resources.budget, self.ledger)

    @property
    def record(self) -> RunRecord:
        """The folder's record in the home's database; `start` must have written it."""
        return self.folder.written_record

    def engine(self, reporter: Reporter, max_failed: int | None, *, models: bool = True) -> Engine:
        """Returns a new engine, which stops after more than `max_failed` failures in a row (None: never).

        `models` says whether trainings keep their model and embeddings.
        """
        return Engine(
            ledger=self.ledger,
            home=self.logs.home,
            packing=self.packing,
            stop=StopConditions(self.folder.path, self.stop, self.account, max_failed),
            reporter=reporter,
            forecasts=Forecasts(self.account, self.packing.concurrent, reporter.note),
            reason=self.reason,
            models=models,
        )

    def encode_inputs(
        self, engine: Engine, jobs: Sequence[JobConfig], *, test: bool = True
    ) -> AbstractContextManager[None]:
        """Returns a context that encodes the frozen inputs of `jobs` for its trainings, see `encode_ahead`.

        The context does nothing if no job has frozen inputs, or if other machines may run the trainings.
        """
        work, reporter = Work.of(jobs, self.logs.home, self.packing.gpus), engine.reporter
        if work is None:
            return nullcontext()
        return encode_ahead(
            work, test=test, show=reporter.report_encoding, note=reporter.note, stop=engine.stop
        )

    @contextmanager
    def start(
        self, identity: Mapping[str, object], asked: Mapping[str, object], log: str | None = None
    ) -> Iterator[None]:
        """Writes the record and the first events of the ledger, then runs the block of the context.

        The block must bring the logs up to date with the ledger. If it fails, the sweep or table is closed as
        FAILED. `identity` has the values that all commands on the sweep or table share, `asked` the options
        of this command. `log` is the id of the log, by default the id of the sweep or table.
        """
        with self.stop.shielded():
            try:
                self._begin_session(identity, asked, log or self.folder.path.name)
                yield
                if tags := self.ledger.code_tags:
                    RunLog.attach(self.logs.home, self.record.log).log_tags(tags)
            except Exception as error:
                self._close_failed(self.reason(error))
                raise

    def _begin_session(self, identity: Mapping[str, object], options: Mapping[str, object], log: str) -> None:
        subject, id = self.subject, self.folder.path.name
        self.folder.open(  # opened first, so that a kill leaves no folder without a record
            experiment=subject.experiment,
            job_hash=subject.job_hash,
            fingerprint=subject.fingerprint,
            log=log,
            uri=self.logs.stored_uri,
            name=subject.name,
        )
        if not self.ledger.head:
            self.ledger.append(subject.kind, id=id, name=subject.name, **identity)
        self.ledger.append("session", code=code(), **options)

    def _close_failed(self, reason: str) -> None:
        """Closes the sweep or table as FAILED after an error at the start; a later command may resume it."""
        record = self.folder.record
        if record is None:
            return
        if self.ledger.head:
            self.ledger.append("end", state=State.FAILED, reason=reason)
            close_trainings(self.logs.home, self.ledger, reason)
        log = RunLog.find(self.logs.home, record.log)
        write_end(End(State.FAILED, reason), log, self.folder.path, run=self.folder)
        self.delivery.drain(stop=self.stop)
        self._notify(CommandEnd(State.FAILED, reason), lambda text: self.watch(ProgressEvent("note", text)))

    @contextmanager
    def work(
        self, reporter: Reporter, conclude: Callable[[State, str], str] = lambda _state, _reason: ""
    ) -> Iterator[CommandEnd]:
        """Writes how the block of the context ended, also after an error, then waits for MLflow's delivery.

        The block sets state and reason of the yielded end. An exception sets FAILED, KeyboardInterrupt
        STOPPED. `conclude` is called with state and reason before these are logged, and returns the verdicts;
        if its text is empty, the verdicts that the block set stay. Last, the end is posted to
        `tracking.notify`, unless the sweep or table is COMPLETE and this command ended no training.
        """
        end, n_ended = CommandEnd(), self._count_ended()
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
                end.verdict = conclude(end.state, end.reason) or end.verdict
                log = RunLog.find(self.logs.home, self.record.log)
                write_end(End(end.state, end.reason), log, self.folder.path, run=self.folder)
                reporter.end(f"{self.subject.kind} {self.subject.name} {end.state}")
                end.undelivered = self.delivery.drain(stop=self.stop)
                if self._count_ended() > n_ended or end.state is not State.COMPLETE:  # else already posted
                    self._notify(end, reporter.note)

    def _count_ended(self) -> int:
        return sum(entry.ended for entry in self.ledger.entries.values())

    def _notify(self, end: CommandEnd, announce: Callable[[str], None]) -> None:
        """Posts the end as JSON to `tracking.notify`, if it is set; chat services show the field `text`."""
        subject = self.subject
        head = f"{subject.kind} {subject.name} {end.state}{f': {end.reason}' if end.reason else ''}"
        content = {
            "text": "\n".join(filter(None, (head, end.verdict))),
            "kind": subject.kind,
            "name": subject.name,
            "id": self.folder.path.name,
            "experiment": subject.experiment,
            "state": str(end.state),
            "reason": end.reason,
            "verdict": end.verdict,
        }
        notify(self.notified, content, announce)

    def reason(self, error: BaseException) -> str:
        """Formats an error as the reason of a state: its secrets are removed, and a long text is cut off."""
        return self.tracker.hide_password(f"{type(error).__name__}: {error}")[:MAX_REASON]


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
    """Yields a command that holds a folder's lock, a Ray session and the delivery to MLflow until it closes.

    `find` returns the folder to resume, or a new one; it is called while a lock keeps other commands on this
    name from starting. `count` returns the largest number of trainings; if it is 0, Ray is not started. If
    the last command ran other code, this is announced. Raises UserError before any training, for example if
    another process holds a lock or, with `strict_code`, if the code has changed.
    """
    watch, target = guard_listener(watch), resolve_target(subject.job.tracking.notify)

    def announce(text: str) -> None:
        watch(ProgressEvent("note", text))

    with ExitStack() as stack:
        move_stderr = stack.enter_context(stderr_to_file())
        tracker = Tracker(home)
        recover(home)
        stop = stack.enter_context(stop_on_signal(announce))
        stack.enter_context(backed_up(home, announce))
        folder = stack.enter_context(_lock_folder(home, subject, find, move_stderr))
        log = "" if folder.record is None else folder.record.log
        is_sweep = subject.kind == "sweep"  # a table whose MLflow run was deleted gets another log and run
        tracker.open_experiment(subject.experiment, Cursor.of(home, log).run_id, announce, needs_run=is_sweep)
        ledger = Ledger(folder.path)
        _check_code(ledger, announce, strict_code)
        if max_trainings := count(ledger, announce):
            stack.enter_context(ray_session(home, subject.resources.local_cpus(subject.job), announce))
        packing = subject.resources.pack(subject.job, max_trainings)
        delivery = stack.enter_context(Delivery(tracker, announce))
        delivery.add_undelivered()
        yield Command(
            subject=subject,
            folder=folder,
            ledger=ledger,
            logs=JobLogs(home, tracker.uri, provenance(ignored_folder=subject.written), delivery.add),
            packing=packing,
            tracker=tracker,
            delivery=delivery,
            stop=stop,
            watch=watch,
            notified=target,
        )


@contextmanager
def _lock_folder(
    home: Path, subject: Subject, find: Callable[[], RunFolder], move_stderr: Callable[[Path], None]
) -> Iterator[RunFolder]:
    """Yields the folder that `find` returns, locked. At the end, a folder without a record is removed.

    Its file of standard error is moved to the home first if the context ends with an error other than
    UserError. Raises UserError if another process holds the lock of the name or of the folder.
    """
    kind, name = subject.kind, subject.name
    # The name is locked first: two commands that begin a sweep of one name at once must not make two sweeps.
    with lock_file(home / f"{kind}s" / f".{name}.lock", LOCK_PATIENCE) as name_locked:
        if not name_locked:
            raise UserError(f"another command runs this {kind}", key=subject.option, found=name)
        folder = find()
        with folder.try_lock(LOCK_PATIENCE) as folder_locked:
            if not folder_locked:
                raise UserError(f"another process holds this {kind}", key=subject.option, found=name)
            _remove_leftovers(folder.path)  # after a command that was killed
            move_stderr(folder.path)
            try:
                yield folder
            except Exception as error:
                if folder.record is None and not isinstance(error, UserError):
                    move_stderr(home)
                raise
            finally:
                _remove_leftovers(folder.path)
                if folder.record is None:
                    shutil.rmtree(folder.path, ignore_errors=True)


def _check_code(ledger: Ledger, announce: Callable[[str], None], strict: bool) -> None:
    codes, version = ledger.codes, code()
    if codes and codes[-1] != version:
        if strict:
            raise UserError("the code has changed", key="--strict-code", found=version, allowed=codes[-1])
        announce(f"the code has changed since the last command: {codes[-1]}, now {version}")


def _remove_leftovers(folder: Path) -> None:
    """Removes what processes of earlier commands left in a folder: Ray's folders, stop and partial files."""
    for scratch in [*folder.glob("ray-*"), *folder.glob("trials/*/ray")]:
        shutil.rmtree(scratch, ignore_errors=True)
    for request in folder.glob(f"trials/*/{STOP_FILE}"):
        request.unlink(missing_ok=True)
    remove_partial(folder)
