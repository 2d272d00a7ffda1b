"""From finished runs to the figures of a table."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from mlcl.config import job_hash
from mlcl.config.table import Cell
from mlcl.data import DatasetInfo
from mlcl.errors import UserError
from mlcl.service.engine.ledger import Ledger
from mlcl.service.engine.nested_trials import log_id
from mlcl.service.tables.origin import Origin, cell_origin, rows_seen
from mlcl.service.tables.plan import Key, TablePlan, TableRun
from mlcl.service.tables.summary import CellReport, FigureReport, scaled
from mlcl.service.tables.tuned_cell import TunedCell
from mlcl.store import RunFolder
from mlcl.tracking import State
from mlcl.training.embeddings import setting_of
from mlcl.training.job_data import JobData
from mlcl.training.run_files import RESULT
from mlcl.training.stored_run import StoredRun

Metrics = dict[str, float]


class Figures:
    """Reads the figures of cells from the folders of their runs."""

    def __init__(self, plan: TablePlan, runs: list[TableRun], home: Path) -> None:
        self._plan, self._home = plan, home
        self._runs = {run.key[0]: run for run in runs}
        self._job_data_cache: dict[str, JobData] = {}

    def cell(self, cell: Cell, done: Mapping[Key, RunFolder], failures: Mapping[Key, str]) -> CellReport:
        """A cell as far as its runs are done, and why they or their numbers are missing."""
        runs = [self._runs[job_hash(job)] for job in cell.jobs]
        keys = [run.key for run in runs]
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
        records = [folder.record for folder in folders if folder is not None]
        logs = [record.log for record in records if record is not None]
        return self._report(cell, metrics, names, reasons, self._origin(cell, runs[0].data, logs))

    def tuned(self, tuned: TunedCell, ledger: Ledger) -> CellReport:
        """A tuned cell as far as its confirmation is done, whose trainings are its runs."""
        seeds, table = tuned.seeds(ledger), ledger.folder.name
        none = [None] * (len(tuned.cell.jobs) - len(seeds))
        metrics = [*(dict(seed.metrics) for seed in seeds), *({} for _ in none)]
        logs = [log_id(table, seed.key) if seed.state is State.COMPLETE else None for seed in seeds]
        origin = self._origin(tuned.cell, tuned.data, [log for log in logs if log])
        report = self._report(tuned.cell, metrics, [*logs, *none], tuned.reasons(ledger), origin)
        best = tuned.best(ledger)
        settings = None if best is None else {**best.settings, **best.chosen}
        return replace(report, settings=settings, search=tuned.search(ledger))

    def _origin(self, cell: Cell, data: DatasetInfo, logs: Sequence[str]) -> Origin:
        return cell_origin(cell, self._plan.table.seed_keys, data, self._home, logs)

    def _report(
        self,
        cell: Cell,
        metrics: Sequence[Metrics],
        names: Sequence[str | None],
        reasons: list[str],
        origin: Origin,
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
            data=rows_seen(cell.jobs[0], origin.fingerprint),
            baseline=cell.jobs[0].baseline is not None,
            origin=origin,
        )

    def _metrics(self, cell: Cell, seed: int, folder: Path) -> Metrics:
        """What the run wrote down; of its neighbours, what its embeddings say under the cell's settings."""
        written = _read(folder / RESULT)
        knn = cell.asked(seed).evaluation.knn
        if not cell.neighbours or knn is None:
            return written
        others = {name: value for name, value in written.items() if not name.startswith("knn/")}
        return others | StoredRun.read(folder, self._job_data(cell, seed)).metrics(setting_of(knn))

    def _job_data(self, cell: Cell, seed: int) -> JobData:
        """The data of a run; many cells ask for one run's, and opening it takes a while."""
        name = job_hash(cell.jobs[seed])
        if name not in self._job_data_cache:
            self._job_data_cache[name] = JobData.of(cell.jobs[seed], self._home, verify=False)
        return self._job_data_cache[name]


def _read(file: Path) -> Metrics:
    try:
        return {name: float(value) for name, value in json.loads(file.read_text()).items()}
    except (OSError, ValueError, TypeError, AttributeError) as error:
        raise UserError("the run's figures cannot be read", file=file, found=error) from None
