"""A table's own log in MLflow, and its files: Markdown, LaTeX and JSON."""

from __future__ import annotations

from mlcl.config import dump_job, flatten
from mlcl.config.table import slug
from mlcl.files import replace_text
from mlcl.results.documents import write_table
from mlcl.results.table_result import TableResult
from mlcl.service.engine.command import Command
from mlcl.service.tables.plan import TablePlan
from mlcl.service.tables.rendering import latex, markdown
from mlcl.tracking import RunLog, State
from mlcl.tracking.names import TABLE_JSON, TABLE_LATEX, TABLE_MARKDOWN, Tag
from mlcl.tracking.params import short_name
from mlcl.tracking.shared_view import cells_view


class TableLog:
    """The log of a table, gone on with by every command on it. Its runs stand below it in MLflow."""

    def __init__(self, plan: TablePlan, command: Command) -> None:
        record, logs = command.folder.record, command.logs
        assert record is not None
        self.id = record.log
        self._log = RunLog.start(
            logs.home,
            record.log,
            uri=logs.uri,
            experiment=record.experiment,
            name=plan.name,
            owner=record.id,
            params={"table": plan.file.stem, "scale": plan.scale or "paper"},
            tags={
                Tag.ID: record.id,
                Tag.NAME: plan.name,
                Tag.KIND: "table",
                Tag.SOURCE: plan.table.source,
                Tag.COMMAND: plan.command,
            },
            source=logs.source,
        )
        self._log.set_state(State.RUNNING)
        self._log.view(record.id, cells_view(_metric_names(plan), _differing(plan)))
        logs.deliver(self.id)

    def write(self, report: TableResult) -> None:
        """Writes the table's files, in its folder and to the log, with the means."""
        for name, text in ((TABLE_MARKDOWN, markdown(report)), (TABLE_LATEX, latex(report))):
            replace_text(report.folder / name, text)
        write_table(report)
        self._log.artifacts([report.folder / name for name in (TABLE_MARKDOWN, TABLE_LATEX, TABLE_JSON)])
        there = sum(run is not None for cell in report.cells for run in cell.runs)
        self._log.metrics(_metrics(report), step=there)
        if report.limits:
            limits = ", ".join(f"{name} {limit:g}" for name, limit in report.limits.items())
            self._log.tags({Tag.OUTSIDE: str(len(report.outside)), Tag.TOLERANCE: limits})


def _metric_names(plan: TablePlan) -> dict[str, bool]:
    """The metrics of the table's figures, and whether more is better."""
    figures = (figure for cell in plan.cells for figure in cell.figures)
    return {figure.metric: plan.table.is_better_higher(figure.name) for figure in figures}


def _differing(plan: TablePlan) -> list[str]:
    """The keys that differ between the first jobs of the cells, those with a short name first."""
    jobs = [flatten(dump_job(cell.jobs[0])) for cell in plan.cells]
    keys = dict.fromkeys(key for job in jobs for key in job)
    differing = (key for key in keys if len({str(job.get(key)) for job in jobs}) > 1)
    return sorted(differing, key=lambda key: short_name(key) is None)


def _metrics(report: TableResult) -> dict[str, float]:
    """The means, with the printed figures beside them, under names that MLflow takes."""
    values: dict[str, float] = {}
    for cell in report.cells:
        for figure in cell.figures:
            name = f"{cell.id}/{slug(figure.name)}".replace("+", "plus")  # MLflow takes no plus sign
            if figure.mean is not None:
                values[name] = figure.mean
            if figure.printed is not None:
                values[f"{name}/printed"] = figure.printed
    return values
