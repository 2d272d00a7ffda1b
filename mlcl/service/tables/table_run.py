"""What a table leaves: its record, its log, and the table itself as Markdown, LaTeX and JSON."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

from mlcl.config.table import slug
from mlcl.service.runs.run_job import usable_log
from mlcl.service.runs.run_store import RunFolder, RunRecord, now
from mlcl.service.tables.plan import TablePlan
from mlcl.service.tables.rendering import as_dict, latex, markdown
from mlcl.service.tables.summary import TableReport
from mlcl.tracking import Provenance, RunLog, State, shown
from mlcl.tracking.atomic_files import replace_text
from mlcl.tracking.names import MAX_REASON, TABLE_JSON, TABLE_LATEX, TABLE_MARKDOWN, Tag


class TableRecord:
    """The folder and the log of a table. Both say RUNNING from `open` to `end`."""

    def __init__(self, plan: TablePlan, identity: str, folder: RunFolder, home: Path, uri: str) -> None:
        self.folder = folder
        self._plan, self._identity, self._home, self._uri = plan, identity, home, uri
        self._log: RunLog | None = None

    @property
    def log(self) -> RunLog:
        """The table's, under which its runs stand in MLflow."""
        assert self._log is not None
        return self._log

    def open(self, source: Provenance, deliver: Callable[[str], None]) -> None:
        """RUNNING, from now on."""
        plan, name = self._plan, self.folder.path.name
        id = usable_log(self._home, name, self._uri)
        self._write(State.RUNNING, id)  # first, so that a kill leaves no folder that nobody finds
        self._log = RunLog.start(
            self._home,
            id,
            uri=self._uri,
            experiment=plan.table.experiment,
            name=plan.name,
            owner=name,
            params={"table": plan.file.stem, "scale": plan.scale or "paper"},
            tags={
                Tag.ID: name,
                Tag.NAME: plan.name,
                Tag.KIND: "table",
                Tag.SOURCE: plan.table.source,
                Tag.COMMAND: plan.command,
            },
            source=source,
        )
        self._log.reopen()
        deliver(id)

    def write(self, report: TableReport) -> None:
        """The table's files, in the folder and in the log, with its means."""
        files = {
            TABLE_MARKDOWN: markdown(report),
            TABLE_LATEX: latex(report),
            TABLE_JSON: json.dumps(as_dict(report), indent=2, default=str) + "\n",
        }
        for name, text in files.items():
            replace_text(self.folder.path / name, text)
        self.log.artifacts([self.folder.path / name for name in files])
        there = sum(run is not None for cell in report.cells for run in cell.runs)
        self.log.metrics(_metrics(report), step=there)
        if report.limits:
            limits = ", ".join(f"{name} {limit:g}" for name, limit in report.limits.items())
            self.log.tags({Tag.OUTSIDE: str(len(report.outside)), Tag.TOLERANCE: limits})

    def end(self, state: State, reason: str) -> None:
        """What became of it."""
        # The log first: after a kill in between the next command takes the state from there.
        self.log.finish(state, reason[:MAX_REASON])
        self._write(state, self.log.id)

    def _write(self, state: State, log: str) -> None:
        before, name = self.folder.record, self.folder.path.name
        self.folder.write(
            RunRecord(
                id=name,
                experiment=self._plan.table.experiment,
                job_hash=self._identity,
                fingerprint="",
                state=state,
                log=log,
                tracking_uri=shown(self._uri),
                created=before.created if before else now(),
                name=self._plan.name,
            )
        )


def _metrics(report: TableReport) -> dict[str, float]:
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
