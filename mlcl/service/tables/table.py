"""One command on one table: train what is missing, then write and log what it came to."""

from __future__ import annotations

import math
import shutil
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from mlcl.errors import UserError
from mlcl.service.engine.budget import Account
from mlcl.service.engine.packing import Packing, nodes, pack
from mlcl.service.engine.progress_events import ProgressEvent, ProgressListener, steady
from mlcl.service.engine.state_sync import close_killed_sweep
from mlcl.service.engine.stop_conditions import StopConditions
from mlcl.service.runs.crash_recovery import close_orphans
from mlcl.service.runs.ray_session import on_cluster, ray_session
from mlcl.service.runs.run_store import RunFolder, RunFolders, submitted_id
from mlcl.service.runs.signals import StopRequest, stop_on_signal
from mlcl.service.tables.figures import Figures
from mlcl.service.tables.plan import Key, TablePlan, TableRun, check_table, finished, identity
from mlcl.service.tables.summary import TableReport
from mlcl.service.tables.table_callbacks import Place, TableCallbacks
from mlcl.service.tables.table_run import TableRecord
from mlcl.tracking import State, provenance
from mlcl.tracking.atomic_files import locked
from mlcl.tracking.delivery import Delivery
from mlcl.tracking.tracker import Tracker

LOCK_PATIENCE = 5.0
"""Seconds that a killed command's processes may hold the table."""
MAX_FAILED = 3
"""Failures in a row after which the rest of a table is not tried."""


def run_table(plan: TablePlan, *, home: Path, watch: ProgressListener) -> TableReport:
    """Trains the cells that are missing and says what all came to. Raises UserError before any start.

    What an interrupted or killed command left is gone on with; what is complete is never trained again.
    """
    runs = check_table(plan, home)
    tracker = Tracker(home)
    watch = steady(watch)

    def announce(text: str) -> None:
        watch(ProgressEvent("note", text))

    tracker.experiment(plan.table.experiment)
    close_orphans(home, close_killed_sweep)
    with stop_on_signal(announce) as stop, _held(plan, runs, home, tracker.uri) as record:
        done = finished(home)
        missing = [run for run in runs if run.key not in done]
        announce(f"{plan.name}: {len(runs) - len(missing)} of {len(runs)} runs are done")
        with _cluster(plan, missing, home) as packing, Delivery(tracker, announce) as delivery:
            delivery.add_left()
            command = _Command(plan, runs, missing, packing, record, home, tracker, delivery, stop, watch)
            return command.run()


@contextmanager
def _held(plan: TablePlan, runs: Sequence[TableRun], home: Path, uri: str) -> Iterator[TableRecord]:
    """The table's record, which no other command has meanwhile. Nothing is left of one not begun."""
    asked = identity(plan, runs)
    with ExitStack() as locks:
        if locks.enter_context(locked(home / "tables" / f".{plan.name}.lock", LOCK_PATIENCE)):
            folder = _folder(plan.name, asked, home)
            if locks.enter_context(folder.owned(LOCK_PATIENCE)):
                for scratch in folder.path.glob("ray-*"):  # of a command that was killed
                    shutil.rmtree(scratch, ignore_errors=True)
                try:
                    yield TableRecord(plan, asked, folder, home, uri)
                finally:
                    if folder.record is None:
                        shutil.rmtree(folder.path, ignore_errors=True)
                return
        raise UserError("another command runs this table", key="TABLE", found=plan.name)


def _folder(name: str, asked: str, home: Path) -> RunFolder:
    """The folder of the same table that was asked for in the same way, or a new one."""
    folders = RunFolders(home, "tables")
    known = (f for f, record in folders.records() if (record.name, record.job_hash) == (name, asked))
    return next(known, None) or folders.new(submitted_id())


@contextmanager
def _cluster(plan: TablePlan, missing: Sequence[TableRun], home: Path) -> Iterator[Packing | None]:
    """A Ray for what is missing, and how many trainings fit into it at once; None where nothing is."""
    if not missing:
        yield None
        return
    train = missing[0].job.train
    cpus = train.workers * max(1, math.ceil(plan.cpus)) if train.workers > 1 else 1
    with ray_session(home, cpus=cpus):
        yield pack(
            nodes(),
            workers=train.workers,
            cpus=plan.cpus,
            gpus=plan.gpus,
            device=train.device,
            most=len(missing),
            parallel=plan.parallel,
            grows=on_cluster(),
        )


@dataclass(frozen=True)
class _Outcome:
    """How the work ended; `failures` has reasons by training."""

    state: State
    reason: str = ""
    failures: dict[Key, str] = field(default_factory=dict)


@dataclass
class _Command:
    """Whatever happens in it, nothing is left RUNNING."""

    plan: TablePlan
    runs: list[TableRun]
    missing: list[TableRun]
    packing: Packing | None
    record: TableRecord
    home: Path
    tracker: Tracker
    delivery: Delivery
    stop: StopRequest
    watch: ProgressListener

    def run(self) -> TableReport:
        """Work, then the report; the state is COMPLETE where every figure is there."""
        with self.stop.shielded():
            self.record.open(provenance(), self.delivery.add)
        state, reason = State.FAILED, ""
        try:
            report = self._report(self._work())
            with self.stop.shielded():
                self.record.write(report)
            state, reason = report.state, report.reason
        except KeyboardInterrupt:  # who insists while figures are read does not wait for them
            state = State.STOPPED
            raise
        except BaseException as error:
            reason = self.tracker.safe(f"{type(error).__name__}: {error}")
            raise
        finally:
            with self.stop.shielded():
                self.record.end(state, reason)
                left = self.delivery.drain(stop=self.stop)
        return replace(report, undelivered=left, run_id=self.delivery.run_id(self.record.log.id))

    def _work(self) -> _Outcome:
        if self.packing is None:
            return _Outcome(State.COMPLETE)
        halt = StopConditions(self.record.folder.path, self.stop, Account(None, 0.0), MAX_FAILED)
        callbacks = TableCallbacks(
            self.missing,
            place=Place(self.home, self.tracker.uri, self.record.log.id, provenance(), self.delivery),
            scratch=self.record.folder.path,
            packing=self.packing,
            halt=halt,
            watch=self.watch,
        )
        insisted = False
        try:
            callbacks.work()
        except KeyboardInterrupt:
            insisted = True
        finally:
            with self.stop.shielded():
                callbacks.close_open()
                halt.clear()
        return self._outcome(callbacks.failures, State.STOPPED if insisted else halt.cause, halt.reason)

    def _outcome(self, failures: dict[Key, str], cause: State | None, reason: str) -> _Outcome:
        """An end that was asked for when everything was there changes nothing."""
        done = finished(self.home)
        left = sum(run.key not in done for run in self.runs)
        if left == 0:
            return _Outcome(State.COMPLETE)
        if cause is not None:
            return _Outcome(cause, reason, failures)
        return _Outcome(State.FAILED, f"{left} of {len(self.runs)} runs are missing", failures)

    def _report(self, outcome: _Outcome) -> TableReport:
        plan, table = self.plan, self.plan.table
        figures, done = Figures(plan, self.runs, self.home), finished(self.home)
        cells = tuple(figures.cell(cell, done, outcome.failures) for cell in plan.cells)
        names = sorted({figure.name for cell in cells for figure in cell.figures})
        report = TableReport(
            id=self.record.folder.path.name,
            name=plan.name,
            command=plan.command,
            title=table.title,
            source=table.source,
            about=plan.about,
            state=outcome.state,
            reason=outcome.reason,
            folder=self.record.folder.path,
            cells=cells,
            unit=table.unit,
            higher={name: table.is_better_higher(name) for name in names},
        )
        if outcome.state is State.COMPLETE and report.missing:
            reason = f"no number for {', '.join(report.missing)}"
            return replace(report, state=State.FAILED, reason=reason)
        return report
