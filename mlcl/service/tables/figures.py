"""From finished runs to the figures of a table."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from mlcl.config import JobConfig, dump_job, job_hash
from mlcl.config.table import Cell
from mlcl.errors import UserError
from mlcl.service.engine.ledger import Ledger
from mlcl.service.runs.run_store import RunFolder
from mlcl.service.tables.plan import Key, TablePlan, TableRun
from mlcl.service.tables.summary import CellReport, FigureReport, scaled
from mlcl.service.tables.tuned_cell import TunedCell
from mlcl.tracking import State
from mlcl.training.files import RESULT
from mlcl.training.job_data import JobData
from mlcl.training.neighbours import setting_of
from mlcl.training.stored_neighbours import stored_metrics

Metrics = dict[str, float]


class Figures:
    """Reads the figures of cells from the folders of their runs."""

    def __init__(self, plan: TablePlan, runs: list[TableRun], home: Path) -> None:
        self._plan, self._home = plan, home
        self._keys = {run.key[0]: run.key for run in runs}
        self._job_data_cache: dict[str, JobData] = {}

    def cell(self, cell: Cell, done: Mapping[Key, RunFolder], failures: Mapping[Key, str]) -> CellReport:
        """A cell as far as its runs are done, and why they or their numbers are missing."""
        keys = [self._keys[job_hash(job)] for job in cell.jobs]
        folders = [done.get(key) for key in keys]
        reasons = [failures[key] for key in keys if key in failures]
        metrics: list[Metrics] = []
        for seed, folder in enumerate(folders):
            try:
                metrics.append({} if folder is None else self._metrics(cell, seed, folder.path))
            except UserError as error:
                metrics.append({})
                reasons.append(error.line())
        names = [None if folder is None else folder.path.name for folder in folders]
        return self._report(cell, metrics, names, reasons)

    def tuned(self, tuned: TunedCell, ledger: Ledger) -> CellReport:
        """A tuned cell as far as its confirmation is done; its runs are the trainings of that."""
        seeds = tuned.seeds(ledger)
        none = [None] * (len(tuned.cell.jobs) - len(seeds))
        metrics = [*(dict(seed.metrics) for seed in seeds), *({} for _ in none)]
        names = [*(seed.key if seed.state is State.COMPLETE else None for seed in seeds), *none]
        report = self._report(tuned.cell, metrics, names, tuned.reasons(ledger))
        best = tuned.best(ledger)
        return report if best is None else replace(report, settings={**best.settings, **best.chosen})

    def _report(
        self, cell: Cell, metrics: Sequence[Metrics], names: Sequence[str | None], reasons: list[str]
    ) -> CellReport:
        figures = []
        for figure in cell.figures:
            values = tuple(scaled(found.get(figure.metric), self._plan.table.unit) for found in metrics)
            reasons += [
                f"{figure.metric} is not a number with seed {seed}"
                for seed, (value, found) in enumerate(zip(values, metrics, strict=True))
                if value is None and found
            ]
            figures.append(
                FigureReport(
                    name=figure.name,
                    metric=figure.metric,
                    printed=figure.printed,
                    values=values,
                    tolerance=self._plan.tolerance(figure.name),
                    digits=self._plan.table.digits_of(figure.name),
                    validation=tuple(
                        scaled(found.get(figure.metric.replace("test/", "val/")), self._plan.table.unit)
                        for found in metrics
                    ),
                )
            )
        return CellReport(
            row=cell.row,
            column=cell.column,
            id=cell.id,
            figures=tuple(figures),
            runs=tuple(names),
            reasons=tuple(dict.fromkeys(reasons)),
            data=_rows_seen(cell.jobs[0]),
            baseline=cell.jobs[0].baseline is not None,
        )

    def _metrics(self, cell: Cell, seed: int, folder: Path) -> Metrics:
        """What the run wrote down; of its neighbours, what its embeddings say under the cell's settings."""
        written = _read(folder / RESULT)
        knn = cell.asked(seed).evaluation.knn
        if not cell.neighbours or knn is None:
            return written
        others = {name: value for name, value in written.items() if not name.startswith("knn/")}
        return others | stored_metrics(folder, self._job_data(cell, seed), setting_of(knn))

    def _job_data(self, cell: Cell, seed: int) -> JobData:
        """The data of a run; many cells ask for one run's, and opening it takes a while."""
        name = job_hash(cell.jobs[seed])
        if name not in self._job_data_cache:
            self._job_data_cache[name] = JobData.of(cell.jobs[seed], self._home, verify=False)
        return self._job_data_cache[name]


def _rows_seen(job: JobConfig) -> str:
    """What decides the rows and labels of a job."""
    seen = [dump_job(job)["data"], job.objective.classifier.labels]
    return hashlib.sha256(json.dumps(seen, sort_keys=True).encode()).hexdigest()[:16]


def _read(file: Path) -> Metrics:
    try:
        return {name: float(value) for name, value in json.loads(file.read_text()).items()}
    except (OSError, ValueError, TypeError, AttributeError) as error:
        raise UserError("the run's figures cannot be read", file=file, found=error) from None
