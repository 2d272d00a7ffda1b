"""Runs one command on a table: trains the missing runs of its cells, then writes and logs their metrics."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path

from mlcl.results.provenance import data_notes, log_start, lower_is_better, provenance_of
from mlcl.results.table_result import TableResult
from mlcl.results.table_verdicts import ranked_figures
from mlcl.service.engine.command import Command, Subject, open_command
from mlcl.service.engine.engine import Engine, StopConditions
from mlcl.service.engine.ledger import Ledger
from mlcl.service.engine.progress import ProgressListener, Reporter
from mlcl.service.engine.shared_runs import SharedRuns
from mlcl.service.engine.source import TrainingSource
from mlcl.service.engine.training_results import TrainingResults
from mlcl.service.tables.cell_results import CellResults
from mlcl.service.tables.origin import check_committed
from mlcl.service.tables.plan import TablePlan
from mlcl.service.tables.table_log import start_log, write_files, write_trials
from mlcl.service.tables.trainings import CellsSource, TableTrainings
from mlcl.service.tables.tuned_cell import TunedCell
from mlcl.store import RunFolder, RunFolders
from mlcl.tracking import RunLog, State
from mlcl.tracking.names import TABLE_TRIALS
from mlcl.tracking.provenance import submitted_id

MAX_FAILED = 3
"""The number of failures in a row after which the next one stops the table."""
MAX_MISSING = 3
"""The largest number of missing metrics that a reason names; the result of the table has them all."""


def run_table(
    plan: TablePlan, *, home: Path, watch: ProgressListener, strict_code: bool = False
) -> TableResult:
    """Trains or resumes the missing cells of a table, after all checks; returns the results of all cells."""
    if plan.table.clean:
        check_committed(plan.file, plan.figures)
    table = TableTrainings(plan, home)
    subject = Subject(
        kind="table",
        option="TABLE",
        name=plan.name,
        experiment=plan.table.experiment,
        job_hash=table.identity,
        fingerprint="",
        job=plan.cells[0].jobs[0],
        resources=plan.resources,
        written=plan.figures,
    )

    def find() -> RunFolder:
        return table.folder() or RunFolders(home, "tables").new_folder(submitted_id())

    def count(ledger: Ledger, announce: Callable[[str], None]) -> int:
        missing_count = table.count_left(table.ledgers(ledger))
        announce(f"{plan.name}: {table.count - missing_count} of {table.count} runs are done")
        return missing_count

    with open_command(subject, home, watch, find, count, strict_code=strict_code) as command:
        ledger, own_log = command.ledger, command.logs.usable_id(command.folder.path.name)
        head = {"job_hash": table.identity, "tuned": {cell.scope: cell.identity_hash for cell in table.tuned}}
        with command.start(head, {"runs": table.count}, own_log):
            log = start_log(plan, command)
            reporter = Reporter(ledger, command.account, command.watch, metric="score", score="score")
            source = CellsSource(table.missing_runs(), ledger, SharedRuns(command.logs, ledger, log.id))
            engine = command.engine(reporter, MAX_FAILED, models=plan.table.models)
            # Decided before this table begins any search: a begun search belongs to the ledger of this table.
            ledgers = {cell: cell_ledger or ledger for cell, cell_ledger in table.ledgers(ledger).items()}
        with command.work(reporter) as end:
            jobs = [run.job for run in table.missing_runs()]
            jobs += [
                job for cell, cell_ledger in ledgers.items() if cell_ledger is ledger for job in cell.jobs
            ]
            sources = _sources(source, ledgers, command, engine, log.id)
            engine.run(sources, lambda: command.encode_inputs(engine, jobs))
            end.state, end.reason = _outcome(table, ledgers, engine.stop)
            report = _build_result(table, ledgers, source, command, log, end.state, end.reason)
            with command.stop.shielded():
                if ledgers:
                    tags = TrainingResults(home, command.delivery.run_id).tags
                    write_trials(report, ledgers, tags)
                    log.log_artifacts([report.folder / TABLE_TRIALS])
                write_files(report, log)
            end.state, end.reason = report.state, report.reason
            end.verdict = "\n".join(report.conclusions)
        return replace(report, undelivered=end.undelivered, run_id=command.delivery.run_id(log.id))


def _sources(
    cells: CellsSource, ledgers: Mapping[TunedCell, Ledger], command: Command, engine: Engine, parent: str
) -> Iterator[TrainingSource]:
    """Yields the missing runs of plain cells, then the stages of tuned cells that this table searches."""
    if cells.left():
        yield cells
    for cell, ledger in ledgers.items():
        if ledger is command.ledger and not engine.stop():
            yield from cell.sources(command, engine, parent, ledgers)


def _outcome(
    table: TableTrainings, ledgers: Mapping[TunedCell, Ledger], stop: StopConditions
) -> tuple[State, str]:
    """Returns the table's state and reason; it is COMPLETE if no run is missing, even after a stop."""
    missing_count = table.count_left(ledgers)
    if missing_count == 0:
        return State.COMPLETE, ""
    if stop.cause is not None:
        return stop.cause, stop.reason
    return State.FAILED, f"{missing_count} of {table.count} runs are missing"


def _build_result(
    table: TableTrainings,
    ledgers: Mapping[TunedCell, Ledger],
    source: CellsSource,
    command: Command,
    log: RunLog,
    state: State,
    reason: str,
) -> TableResult:
    """Builds the result of the table; its state is FAILED instead of COMPLETE if metrics are missing."""
    plan, config = table.plan, table.plan.table
    results = CellResults(table, source.failed, command.delivery.run_id)
    searches = {cell.cell.id: (cell, ledger) for cell, ledger in ledgers.items()}
    cells = tuple(
        results.tuned_result(*searches[cell.id]) if cell.id in searches else results.plain_result(cell)
        for cell in plan.cells
    )
    tags = [results.trainings.tags(training.log) for cell in cells for training in cell.trainings]
    table_tags = log_start(table.home, log.id).get("tags", {}) | command.ledger.code_tags
    names = sorted({figure.name for cell in cells for figure in cell.figures})
    report = TableResult(
        id=command.folder.path.name,
        name=plan.name,
        command=plan.command,
        title=config.title,
        source=config.source,
        about=plan.about,
        state=state,
        reason=reason,
        folder=command.folder.path,
        cells=cells,
        unit=config.unit,
        higher={name: config.is_better_higher(name) for name in names},
        lower_is_better=lower_is_better(tags),
        notes=data_notes(tags),
        provenance=provenance_of(table_tags, tags),
        control=config.control,
        gains=config.gains,
    )
    if config.ranks is not None:
        report = replace(report, ranks=ranked_figures(report.cells, report.higher, config.ranks))
    if state is State.COMPLETE and report.missing:
        first_missing, more_count = report.missing[:MAX_MISSING], len(report.missing) - MAX_MISSING
        rest = f" and {more_count:,} more" if more_count > 0 else ""
        return replace(report, state=State.FAILED, reason=f"no number for {', '.join(first_missing)}{rest}")
    return report
