"""Builds the results of a table's cells from their finished runs."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from mlcl.config import job_hash
from mlcl.config.table.cells import Cell
from mlcl.data import DatasetInfo
from mlcl.errors import UserError
from mlcl.results.cell_result import CellResult, FigureResult, scaled
from mlcl.results.sweep_result import TrainingResult, changes
from mlcl.service.engine.entries import Entry
from mlcl.service.engine.ledger import Ledger
from mlcl.service.engine.nested_trials import log_id
from mlcl.service.engine.training_results import TrainingResults
from mlcl.service.tables.origin import cell_origin, rows_seen
from mlcl.service.tables.plan import Key, TablePlan, TableRun
from mlcl.service.tables.tuned_cell import TunedCell
from mlcl.store import RunFolder
from mlcl.tracking import State, typed_params
from mlcl.tracking.names import Tag
from mlcl.training.embeddings import setting_of
from mlcl.training.job_data import JobData
from mlcl.training.run_files import RESULT
from mlcl.training.stored_run import StoredRun

Metrics = dict[str, float]


class Figures:
    """Reads the figures of cells from the folders of their runs.

    Args:
        plan: What was asked for.
        runs: The runs of the cells that are not tuned.
        home: The folder of runs and logs.
        run_id: Gives the id of a log's run in MLflow, None where it has not been delivered.
    """

    def __init__(
        self, plan: TablePlan, runs: list[TableRun], home: Path, run_id: Callable[[str], str | None]
    ) -> None:
        self._plan, self._home = plan, home
        self._runs = {run.key[0]: run for run in runs}
        self._job_data_cache: dict[str, JobData] = {}
        self.trainings = TrainingResults(home, run_id)

    def cell(self, cell: Cell, done: Mapping[Key, RunFolder], failed: Mapping[Key, Entry]) -> CellResult:
        """A cell as far as its runs are done, and why they or their numbers are missing."""
        runs = [self._runs[job_hash(job)] for job in cell.jobs]
        reasons = [failed[run.key].reason for run in runs if run.key in failed]
        params = typed_params(cell.asked(0))
        names, metrics, trainings = list[str | None](), list[Metrics](), list[TrainingResult]()
        for seed, run in enumerate(runs):
            folder, found = done.get(run.key), Metrics()
            names.append(None if folder is None else folder.path.name)
            if folder is not None:
                try:
                    found = self._metrics(cell, seed, folder.path)
                except UserError as error:
                    reasons.append(error.line())
                trainings.append(self._training(cell, seed, folder, found, params))
            elif run.key in failed:
                entry = failed[run.key]
                trainings.append(self.trainings.build(entry, entry.key, params))
            metrics.append(found)
        return self._result(cell, runs[0].data, metrics, names, reasons, params, trainings)

    def _training(
        self, cell: Cell, seed: int, folder: RunFolder, metrics: Metrics, shared: Mapping[str, Any]
    ) -> TrainingResult:
        """The training of a finished run, which this table or another command made."""
        record, job = folder.record, cell.jobs[seed]
        log = folder.path.name if record is None else record.log
        start = self.trainings.start(log)
        return TrainingResult(
            key=folder.path.name,
            label=f"{cell.row}, {cell.column}, seed {seed}",
            state=State.COMPLETE,
            metrics=metrics,
            seed=job.train.seed,
            changes=changes(shared, typed_params(cell.asked(seed))),
            job_hash=job_hash(job),
            fingerprint=self.trainings.tags(log).get(Tag.FINGERPRINT, ""),
            started=start.get("time"),
            log=log,
            run_id=self.trainings.run_id(log),
        )

    def tuned(self, tuned: TunedCell, ledger: Ledger) -> CellResult:
        """A tuned cell as far as its confirmation is done, whose trainings are its runs."""
        seeds, table, best = tuned.seeds(ledger), ledger.folder.name, tuned.best(ledger)
        none = [None] * (len(tuned.cell.jobs) - len(seeds))
        metrics = [*(dict(seed.metrics) for seed in seeds), *({} for _ in none)]
        logs = [log_id(table, seed.key) for seed in seeds]
        names = [log if seed.state is State.COMPLETE else None for log, seed in zip(logs, seeds, strict=True)]
        params = self.trainings.job(logs[0], seeds[0].job)[0] if seeds else {}
        trainings = [
            self.trainings.build(seed, log, params)
            for seed, log in zip(seeds, logs, strict=True)
            if seed.ended
        ]
        reasons, names = tuned.reasons(ledger), [*names, *none]
        result = self._result(tuned.cell, tuned.data, metrics, names, reasons, params, trainings)
        settings = None if best is None else {**best.settings, **best.chosen}
        return replace(result, settings=settings, search=tuned.search(ledger))

    def _result(
        self,
        cell: Cell,
        data: DatasetInfo,
        metrics: Sequence[Metrics],
        names: Sequence[str | None],
        reasons: list[str],
        params: Mapping[str, Any],
        trainings: Sequence[TrainingResult],
    ) -> CellResult:
        figures, table = [], self._plan.table
        for figure in cell.figures:
            values = tuple(scaled(found.get(figure.metric), table.unit) for found in metrics)
            reasons += [
                f"{figure.metric} is not a number with seed {seed}"
                for seed, (value, found) in enumerate(zip(values, metrics, strict=True))
                if value is None and found
            ]
            validation = figure.metric.replace("test/", "val/")
            figures.append(
                FigureResult(
                    name=figure.name,
                    metric=figure.metric,
                    printed=figure.printed,
                    values=values,
                    tolerance=self._plan.tolerance(figure.name),
                    digits=table.digits_of(figure.name),
                    validation=tuple(scaled(found.get(validation), table.unit) for found in metrics),
                )
            )
        complete = [its for its in trainings if its.state is State.COMPLETE]
        tags = [self.trainings.tags(its.log) for its in complete]
        origin = cell_origin(cell, table.seed_keys, data, tags)
        return CellResult(
            row=cell.row,
            column=cell.column,
            id=cell.id,
            figures=tuple(figures),
            runs=tuple(names),
            reasons=tuple(dict.fromkeys(reasons)),
            data=rows_seen(cell.jobs[0], origin.fingerprint),
            baseline=cell.jobs[0].baseline is not None,
            origin=origin,
            params=params,
            trainings=tuple(trainings),
            neighbours=bool(cell.neighbours),
        )

    def _metrics(self, cell: Cell, seed: int, folder: Path) -> Metrics:
        """The metrics that the run wrote; those of neighbours by its embeddings under the cell's settings."""
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
