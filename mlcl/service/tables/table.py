"""A table: trains what is missing of its cells, then writes and logs their figures."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from mlcl.results.provenance import Tags, data_notes, log_start, lower_is_better, provenance_of
from mlcl.results.table_result import CellResult, TableResult
from mlcl.service.engine.command import Command, Task, Work, run_command
from mlcl.service.engine.ledger import Ledger
from mlcl.service.engine.progress import ProgressListener, Reporter
from mlcl.service.engine.session import Engine
from mlcl.service.engine.shared_runs import SharedRuns
from mlcl.service.runs.job_logs import JobLogs
from mlcl.service.tables.cells_source import CellsSource
from mlcl.service.tables.figures import Figures
from mlcl.service.tables.plan import TablePlan, TableRun, check_table, finished, identity, known_folder
from mlcl.service.tables.table_log import TableLog
from mlcl.service.tables.tuned_cell import TableLedgers, TunedCell, tuned_cells
from mlcl.significance.table_tests import ranked_figures
from mlcl.store import RunFolder, RunFolders
from mlcl.tracking import State
from mlcl.tracking.names import Tag
from mlcl.tracking.provenance import submitted_id

MAX_FAILED = 3
"""Failures in a row after which the rest of a table is not tried."""
MAX_MISSING = 3
"""Figures that a reason names; the report has them all."""


def run_table(
    plan: TablePlan, *, home: Path, watch: ProgressListener, strict_code: bool = False
) -> TableResult:
    """Trains the cells that are missing and says what all came to. Raises UserError before any start.

    What an interrupted or killed command left is gone on with; what is complete is never trained again.
    """
    return run_command(TableTask(plan, home), home, watch, strict_code=strict_code)


class PlannedTable(Task[TableResult]):
    """A table as it was asked for: equal `job_hash`es are one table."""

    kind, option, fingerprint = "table", "TABLE", ""

    def __init__(self, plan: TablePlan, home: Path, job_hash: str) -> None:
        self._plan, self._home, self.job_hash = plan, home, job_hash
        self.name, self.experiment = plan.name, plan.table.experiment
        self.job, self.resources = plan.cells[0].jobs[0], plan.resources

    def folder(self) -> RunFolder:
        """That of the same table, asked for in the same way, or a new one."""
        known = known_folder(self._home, self.name, self.job_hash)
        return known or RunFolders(self._home, "tables").new(submitted_id())

    def log_id(self, id: str, logs: JobLogs) -> str:
        """The table's id, numbered where another store has a log of it."""
        return logs.usable(id)


class TableTask(PlannedTable):
    """A table whose missing cells are trained. Raises UserError for whatever can be wrong in the plan."""

    def __init__(self, plan: TablePlan, home: Path) -> None:
        self._runs, self._tuned = check_table(plan, home), tuned_cells(plan, home)
        super().__init__(plan, home, identity(plan, self._runs, [tuned.identity for tuned in self._tuned]))
        self.identity = {
            "job_hash": self.job_hash,
            "tuned": {each.scope: each.identity_hash for each in self._tuned},
        }
        self._ledgers = TableLedgers(home)
        self._all = len(self._runs) + sum(tuned.most for tuned in self._tuned)
        self.asked = {"runs": self._all}

    def _missing(self) -> list[TableRun]:
        done = finished(self._home)
        return [run for run in self._runs if run.key not in done]

    def most(self, folder: RunFolder, announce: Callable[[str], None]) -> int:
        """The trainings that are missing."""
        ledger = Ledger(folder.path)
        searches = sum(each.left(self._ledgers.of(each, ledger)) for each in self._tuned)
        left = len(self._missing()) + searches
        announce(f"{self.name}: {self._all - left} of {self._all} runs are done")
        return left

    def take_up(self, command: Command) -> TrainedTable:
        """Starts the table's own log, or goes on with it."""
        log = TableLog(self._plan, command)
        reporter = Reporter(command.ledger, command.account, command.watch, metric="score", score="score")
        source = CellsSource(self._missing(), command.ledger, SharedRuns(command.logs, log.id))
        engine = replace(command.engine(reporter, MAX_FAILED), models=self._plan.table.models)
        # Found before this table begins a search: then it is its own.
        ledgers = {each: self._ledgers.of(each, command.ledger) or command.ledger for each in self._tuned}
        return TrainedTable(self._plan, command, engine, log, self._runs, ledgers, source)


@dataclass
class LoggedTable(Work[TableResult]):
    """A table that was taken up, with a log of its own."""

    plan: TablePlan
    command: Command
    engine: Engine
    log: TableLog

    def conclude(self, state: State, reason: str) -> None:
        """The state, in the table's own log."""
        self.log.finish(state, reason)

    def report(self, outcome: TableResult, undelivered: int) -> TableResult:
        """The outcome with the table's run in MLflow."""
        return replace(outcome, undelivered=undelivered, run_id=self.command.delivery.run_id(self.log.id))

    def with_provenance(self, report: TableResult, trainings: Sequence[Tags] = ()) -> TableResult:
        """The report with the provenance of the table and of its trainings with these tags."""
        codes = self.command.ledger.codes
        own = dict(log_start(self.command.logs.home, self.log.id).get("tags", {}))
        own |= {Tag.CODE: ", then ".join(codes)} if len(codes) > 1 else {}
        return replace(
            report,
            lower_is_better=lower_is_better(trainings),
            notes=data_notes(trainings),
            provenance=provenance_of(own, trainings),
        )


@dataclass
class TrainedTable(LoggedTable):
    """A table whose cells are trained. `tuned` has the ledger of each tuned cell, maybe another table's."""

    runs: list[TableRun]
    tuned: Mapping[TunedCell, Ledger]
    source: CellsSource

    def train(self) -> None:
        """Trains all that is missing: plain cells, then one tuned cell after the other."""
        if self.source.left():
            self.engine.run(self.source)
        for tuned, ledger in self.tuned.items():
            if ledger is self.command.ledger and not self.engine.stop():
                tuned.train(self.command, self.engine, self.log.id)

    def outcome(self) -> TableResult:
        """COMPLETE where every figure is there. Writes the table's files."""
        report = self._read(*self._trained())
        with self.command.stop.shielded():
            self.log.write(report)
        return report

    def _trained(self) -> tuple[State, str]:
        """An end that was asked for when everything was there changes nothing."""
        done, stop = finished(self.command.logs.home), self.engine.stop
        searches = sum(tuned.left(ledger) for tuned, ledger in self.tuned.items())
        left = sum(run.key not in done for run in self.runs) + searches
        if left == 0:
            return State.COMPLETE, ""
        if stop.cause is not None:
            return stop.cause, stop.reason
        return State.FAILED, f"{left} of {len(self.runs) + sum(t.most for t in self.tuned)} runs are missing"

    def _read(self, state: State, reason: str) -> TableResult:
        plan, home = self.plan, self.command.logs.home
        figures, done = Figures(plan, self.runs, home, self.command.delivery.run_id), finished(home)
        tuned = {each.cell.id: each for each in self.tuned}
        cells = [
            figures.tuned(tuned[cell.id], self.tuned[tuned[cell.id]])
            if cell.id in tuned
            else figures.cell(cell, done, self.source.failed)
            for cell in plan.cells
        ]
        tags = [figures.trainings.tags(its.log) for cell in cells for its in cell.trainings]
        report = table_report(plan, self.command.folder.path, cells, state, reason)
        return self.with_provenance(report, tags)


def table_report(
    plan: TablePlan, folder: Path, cells: Sequence[CellResult], state: State, reason: str = ""
) -> TableResult:
    """The report of a table with these cells; one that lacks figures is not COMPLETE."""
    table = plan.table
    names = sorted({figure.name for cell in cells for figure in cell.figures})
    report = TableResult(
        id=folder.name,
        name=plan.name,
        command=plan.command,
        title=table.title,
        source=table.source,
        about=plan.about,
        state=state,
        reason=reason,
        folder=folder,
        cells=tuple(cells),
        unit=table.unit,
        higher={name: table.is_better_higher(name) for name in names},
    )
    if table.ranks is not None:
        report = replace(report, ranks=ranked_figures(report.scores, report.higher, table.ranks))
    if state is State.COMPLETE and report.missing:
        first, more = report.missing[:MAX_MISSING], len(report.missing) - MAX_MISSING
        rest = f" and {more:,} more" if more > 0 else ""
        return replace(report, state=State.FAILED, reason=f"no number for {', '.join(first)}{rest}")
    return report
