"""A table: trains what is missing of its cells, then writes and logs their figures."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from mlcl.results.provenance import data_notes, log_start, lower_is_better, provenance_of
from mlcl.results.table_result import CellResult, TableResult
from mlcl.service.engine.command import Command, Subject, open_command
from mlcl.service.engine.engine import Engine
from mlcl.service.engine.ledger import Ledger
from mlcl.service.engine.progress import ProgressListener, Reporter
from mlcl.service.engine.shared_runs import SharedRuns
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
    runs, searches = check_table(plan, home), tuned_cells(plan, home)
    known, every = TableLedgers(home), len(runs) + sum(each.most for each in searches)
    asked_for = identity(plan, runs, [each.identity for each in searches])
    subject = Subject(
        kind="table",
        option="TABLE",
        name=plan.name,
        experiment=plan.table.experiment,
        job_hash=asked_for,
        fingerprint="",
        job=plan.cells[0].jobs[0],
        resources=plan.resources,
    )

    def find() -> RunFolder:
        found = known_folder(home, plan.name, asked_for)
        return found or RunFolders(home, "tables").new(submitted_id())

    def count(ledger: Ledger, announce: Callable[[str], None]) -> int:
        left = len(_missing(runs, home)) + sum(each.left(known.of(each, ledger)) for each in searches)
        announce(f"{plan.name}: {every - left} of {every} runs are done")
        return left

    with open_command(subject, home, watch, find, count, strict_code=strict_code) as command:
        ledger, own_log = command.ledger, command.logs.usable(command.folder.path.name)
        hashes = {each.scope: each.identity_hash for each in searches}
        with command.start({"job_hash": asked_for, "tuned": hashes}, {"runs": every}, own_log):
            log = TableLog(plan, command)
            reporter = Reporter(ledger, command.account, command.watch, metric="score", score="score")
            source = CellsSource(_missing(runs, home), ledger, SharedRuns(command.logs, ledger, log.id))
            engine = command.engine(reporter, MAX_FAILED, models=plan.table.models)
            # Found before this table begins a search: then it is its own.
            tuned = {each: known.of(each, ledger) or ledger for each in searches}
        with command.work(reporter) as end:
            if source.left():
                engine.run(source)
            for cell, its in tuned.items():
                if its is ledger and not engine.stop():
                    cell.train(command, engine, log.id)
            state, reason = _state(runs, tuned, engine, home)
            report = _read(plan, runs, tuned, source, command, log.id, state, reason)
            with command.stop.shielded():
                log.write(report)
            end.state, end.reason = report.state, report.reason
        return replace(report, undelivered=end.undelivered, run_id=command.delivery.run_id(log.id))


def _missing(runs: Sequence[TableRun], home: Path) -> list[TableRun]:
    done = finished(home)
    return [run for run in runs if run.key not in done]


def _state(
    runs: Sequence[TableRun], tuned: Mapping[TunedCell, Ledger], engine: Engine, home: Path
) -> tuple[State, str]:
    """State and reason; an end that was asked for when everything was there changes nothing."""
    left = len(_missing(runs, home)) + sum(cell.left(ledger) for cell, ledger in tuned.items())
    if left == 0:
        return State.COMPLETE, ""
    if engine.stop.cause is not None:
        return engine.stop.cause, engine.stop.reason
    return State.FAILED, f"{left} of {len(runs) + sum(cell.most for cell in tuned)} runs are missing"


def _read(
    plan: TablePlan,
    runs: Sequence[TableRun],
    tuned: Mapping[TunedCell, Ledger],
    source: CellsSource,
    command: Command,
    log: str,
    state: State,
    reason: str,
) -> TableResult:
    """The figures of all cells: plain ones from their runs, tuned ones from their search's ledger."""
    home = command.logs.home
    figures, done = Figures(plan, list(runs), home, command.delivery.run_id), finished(home)
    searches = {cell.cell.id: (cell, ledger) for cell, ledger in tuned.items()}
    cells = [
        figures.tuned(*searches[cell.id]) if cell.id in searches else figures.cell(cell, done, source.failed)
        for cell in plan.cells
    ]
    tags = [figures.trainings.tags(its.log) for cell in cells for its in cell.trainings]
    own, codes = dict(log_start(home, log).get("tags", {})), command.ledger.codes
    own |= {Tag.CODE: ", then ".join(codes)} if len(codes) > 1 else {}
    return replace(
        table_report(plan, command.folder.path, cells, state, reason),
        lower_is_better=lower_is_better(tags),
        notes=data_notes(tags),
        provenance=provenance_of(own, tags),
    )


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
