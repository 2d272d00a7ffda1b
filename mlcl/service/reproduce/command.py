"""One command on one table: train what is missing, then write and log what it came to."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, field, replace
from pathlib import Path

from mlcl.config.table.cells import slug
from mlcl.errors import UserError
from mlcl.service.budget import Account
from mlcl.service.folders import RunFolder, RunFolders, RunRecord
from mlcl.service.halt import Halt
from mlcl.service.interrupt import StopRequest, stop_on_signal
from mlcl.service.orphans import close_orphans
from mlcl.service.packing import Packing, nodes, pack
from mlcl.service.reproduce.desk import TableDesk
from mlcl.service.reproduce.figures import Figures
from mlcl.service.reproduce.outcome import TableReport
from mlcl.service.reproduce.plan import TablePlan, TableRun, check_table, finished
from mlcl.service.reproduce.render import as_dict, latex, markdown
from mlcl.service.retell import close_killed_sweep
from mlcl.service.session import ray_session
from mlcl.service.single import usable_log
from mlcl.service.watch import SweepEvent, Watcher, steady
from mlcl.tracking import RunLog, State, provenance, shown
from mlcl.tracking.delivery import Delivery
from mlcl.tracking.files import locked, replace_text
from mlcl.tracking.store import Tracker
from mlcl.training.context import pick_device

LOCK_PATIENCE = 5.0
"""Seconds that a killed command's processes may hold the table."""
MAX_FAILED = 3
"""Failures in a row after which the rest of a table is not tried."""


def run_table(plan: TablePlan, *, home: Path, watch: Watcher) -> TableReport:
    """Trains the cells that are missing and says what all came to. Raises UserError before any start.

    What an interrupted or killed command left is gone on with; what is complete is never trained again.
    """
    runs = check_table(plan, home)
    if runs[0].job.train.workers == 1 and not plan.gpus:
        pick_device(runs[0].job.train.device)
    tracker = Tracker(home)
    watch = steady(watch)

    def announce(text: str) -> None:
        watch(SweepEvent("note", text))

    tracker.experiment(plan.table.experiment)
    close_orphans(home, close_killed_sweep)
    with (
        stop_on_signal(announce) as stop,
        locked(home / "tables" / f".{plan.name}.lock", LOCK_PATIENCE) as mine,
    ):
        if not mine:
            raise UserError("another command runs this table", key="TABLE", found=plan.name)
        folder = _folder(plan, home)
        with folder.owned(LOCK_PATIENCE), Delivery(tracker, announce) as delivery:
            delivery.add_left()
            return _Command(plan, runs, folder, home, tracker.uri, delivery, stop, watch).run()


def _folder(plan: TablePlan, home: Path) -> RunFolder:
    """The table's folder, the same as long as its file says the same."""
    folders = RunFolders(home, "tables")
    found = folders.named(plan.name)
    record = None if found is None else found.record
    if found is not None and record is not None and record.job_hash == plan.identity:
        return found
    return folders.new()


@dataclass(frozen=True)
class _Outcome:
    """How the work ended; `failures` has reasons by training."""

    state: State
    reason: str = ""
    failures: dict[tuple[str, str], str] = field(default_factory=dict)


@dataclass
class _Command:
    """Whatever happens in it, nothing is left RUNNING."""

    plan: TablePlan
    runs: list[TableRun]
    folder: RunFolder
    home: Path
    uri: str
    delivery: Delivery
    stop: StopRequest
    watch: Watcher

    def run(self) -> TableReport:
        """Work, then the report; the state is COMPLETE where every figure is there."""
        with self.stop.shielded():
            log = self._open()
        try:
            try:
                outcome = self._work(log)
            except KeyboardInterrupt:
                outcome = _Outcome(State.STOPPED)
            with self.stop.shielded():
                report = self._report(outcome)
                self._write(log, report)
        except BaseException as error:
            with self.stop.shielded():
                self._end(log, State.FAILED, f"{type(error).__name__}: {error}")
                self.delivery.drain(stop=self.stop)
            raise
        with self.stop.shielded():
            self._end(log, outcome.state, outcome.reason)
            undelivered = self.delivery.drain(stop=self.stop)
        return replace(report, undelivered=undelivered, run_id=self.delivery.run_id(log.id))

    def _work(self, log: RunLog) -> _Outcome:
        done = finished(self.home)
        missing = [run for run in self.runs if run.key not in done]
        self.watch(
            SweepEvent(
                "note", f"{self.plan.name}: {len(self.runs) - len(missing)} of {len(self.runs)} are done"
            )
        )
        if not missing:
            return _Outcome(State.COMPLETE)
        workers = self.runs[0].job.train.workers
        cpus = workers * max(1, math.ceil(self.plan.cpus)) if workers > 1 else 1
        with ray_session(cpus=cpus):
            halt = Halt(self.folder.path, self.stop, Account(None, 0.0), MAX_FAILED)
            desk = TableDesk(
                missing,
                home=self.home,
                scratch=self.folder.path,
                uri=self.uri,
                parent=log.id,
                source=provenance(),
                delivery=self.delivery,
                packing=self._pack(len(missing)),
                halt=halt,
                watch=self.watch,
            )
            try:
                desk.work()
            finally:
                with self.stop.shielded():
                    desk.close_open()
                    halt.clear()
        failures = desk.failures
        if halt.cause is not None and any(run.key not in finished(self.home) for run in self.runs):
            return _Outcome(halt.cause, halt.reason, failures)
        if failures:
            return _Outcome(State.FAILED, f"{len(failures)} trainings failed", failures)
        return _Outcome(State.COMPLETE)

    def _pack(self, most: int) -> Packing:
        train = self.runs[0].job.train
        return pack(
            nodes(),
            workers=train.workers,
            cpus=self.plan.cpus,
            gpus=self.plan.gpus,
            device=train.device,
            most=most,
        )

    def _open(self) -> RunLog:
        plan, name = self.plan, self.folder.path.name
        id = usable_log(self.home, name, self.uri)
        self._record(State.RUNNING, id)  # first, so that a kill leaves no folder that nobody finds
        log = RunLog.start(
            self.home,
            id,
            uri=self.uri,
            experiment=plan.table.experiment,
            name=plan.name,
            owner=name,
            params={"table": plan.file.stem, "scale": plan.scale or "paper"},
            tags={
                "mlcl.id": name,
                "mlcl.name": plan.name,
                "mlcl.kind": "table",
                "mlcl.source": plan.table.source,
            },
            source=provenance(),
        )
        if log.state is not State.RUNNING:
            log.reopen()
        self.delivery.add(id)
        return log

    def _record(self, state: State, log: str) -> None:
        before, name = self.folder.record, self.folder.path.name
        self.folder.write(
            RunRecord(
                id=name,
                experiment=self.plan.table.experiment,
                job_hash=self.plan.identity,
                fingerprint="",
                state=state,
                log=log,
                tracking_uri=shown(self.uri),
                created=before.created if before else name.split("-", 1)[1],
                name=self.plan.name,
            )
        )

    def _write(self, log: RunLog, report: TableReport) -> None:
        """Writes the table and logs it."""
        files = {
            "table.md": markdown(report),
            "table.tex": latex(report),
            "table.json": json.dumps(as_dict(report), indent=2, default=str) + "\n",
        }
        for name, text in files.items():
            replace_text(self.folder.path / name, text)
        log.artifacts([self.folder.path / name for name in files])
        there = sum(run is not None for cell in report.cells for run in cell.runs)
        log.metrics(_metrics(report), step=there)
        log.tags({"mlcl.outside": str(len(report.outside)), "mlcl.tolerance": str(report.tolerance)})

    def _end(self, log: RunLog, state: State, reason: str) -> None:
        # The log first: after a kill in between the next command takes the state from there.
        log.finish(state, reason)
        self._record(state, log.id)

    def _report(self, outcome: _Outcome) -> TableReport:
        plan, table = self.plan, self.plan.table
        figures, done = Figures(plan, self.runs, self.home), finished(self.home)
        cells = tuple(figures.cell(cell, done, outcome.failures) for cell in plan.cells)
        names = {figure.name for cell in cells for figure in cell.figures}
        return TableReport(
            id=self.folder.path.name,
            name=plan.name,
            title=table.title,
            source=table.source,
            about=plan.about,
            state=outcome.state,
            reason=outcome.reason,
            folder=self.folder.path,
            cells=cells,
            unit=table.unit,
            digits=table.digits,
            tolerance=plan.tolerance,
            higher={name: table.is_better_higher(name) for name in sorted(names)},
        )


def _metrics(report: TableReport) -> dict[str, float]:
    """The means, with the printed figures beside them, under names that MLflow takes."""
    values: dict[str, float] = {}
    for cell in report.cells:
        for figure in cell.figures:
            # MLflow takes neither plus signs nor most other marks.
            name = f"{cell.id}/{slug(figure.name) or 'figure'}".replace("+", "plus")
            if figure.mean is not None:
                values[name] = figure.mean
            if figure.printed is not None:
                values[f"{name}/printed"] = figure.printed
    return values
