"""Builds the results of a table's cells from the folders of their runs and the ledgers of their searches."""

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
from mlcl.results.cell_result import CellResult, FigureResult, scale_metric
from mlcl.results.training_result import TrainingResult, changes, training_folder
from mlcl.service.engine.closing import log_id
from mlcl.service.engine.entries import Entry
from mlcl.service.engine.ledger import Ledger
from mlcl.service.engine.training_results import TrainingResults
from mlcl.service.tables.origin import cell_origin, rows_seen
from mlcl.service.tables.trainings import Key, TableTrainings, find_complete_runs
from mlcl.service.tables.tuned_cell import TunedCell
from mlcl.store import RunFolder
from mlcl.tracking import State, typed_params
from mlcl.tracking.names import Tag
from mlcl.training.embeddings import setting_of
from mlcl.training.job_data import JobData
from mlcl.training.row_predictions import blocks_of
from mlcl.training.run_files import RESULT
from mlcl.training.stored_run import StoredRun

Metrics = dict[str, float]


class CellResults:
    """Builds the results of cells from ended trainings; `failed` has the runs that failed in this command."""

    def __init__(
        self, table: TableTrainings, failed: Mapping[Key, Entry], run_id: Callable[[str], str | None]
    ) -> None:
        self._plan, self._home, self._failed_entries = table.plan, table.home, failed
        self._runs_by_hash = {run.key[0]: run for run in table.runs}
        self._finished_runs = find_complete_runs(table.home)
        self._job_data_cache: dict[str, JobData] = {}
        self.trainings = TrainingResults(table.home, run_id)

    def plain_result(self, cell: Cell) -> CellResult:
        """Returns the result of a cell that is not tuned, with reasons why runs or metrics are missing."""
        runs = [self._runs_by_hash[job_hash(job)] for job in cell.jobs]
        reasons = [self._failed_entries[run.key].reason for run in runs if run.key in self._failed_entries]
        params = typed_params(cell.seed_job(0))
        names, metrics, trainings = list[str | None](), list[Metrics](), list[TrainingResult]()
        for seed, run in enumerate(runs):
            folder, run_metrics = self._finished_runs.get(run.key), Metrics()
            names.append(None if folder is None else folder.path.name)
            if folder is not None:
                try:
                    run_metrics = self._read_metrics(cell, seed, folder.path)
                except UserError as error:
                    reasons.append(error.line())
                trainings.append(self._training_result(cell, seed, folder, run_metrics, params))
            elif run.key in self._failed_entries:
                entry = self._failed_entries[run.key]
                trainings.append(self.trainings.build(entry, entry.key, params))
            metrics.append(run_metrics)
        seeds = [run.job.train.seed for run in runs]
        return self._cell_result(cell, runs[0].data, seeds, metrics, names, reasons, params, trainings)

    def _training_result(
        self, cell: Cell, seed: int, folder: RunFolder, metrics: Metrics, shared_params: Mapping[str, Any]
    ) -> TrainingResult:
        """Returns the result of a finished run, which this table or another command has trained."""
        record, job = folder.record, cell.jobs[seed]
        log = folder.path.name if record is None else record.log
        return TrainingResult(
            key=folder.path.name,
            label=f"{cell.row}, {cell.column}, seed {job.train.seed}",
            state=State.COMPLETE,
            metrics=metrics,
            blocks=_read_blocks(cell, folder.path, metrics),
            seed=job.train.seed,
            changes=changes(shared_params, typed_params(cell.seed_job(seed))),
            job_hash=job_hash(job),
            fingerprint=self.trainings.tags(log).get(Tag.FINGERPRINT, ""),
            started=self.trainings.start(log).get("time"),
            log=log,
            run_id=self.trainings.run_id(log),
        )

    def tuned_result(self, tuned_cell: TunedCell, ledger: Ledger) -> CellResult:
        """Returns the result of a tuned cell, from the trainings of its searches' picks on fresh seeds."""
        slots = [slot for search in tuned_cell.searches(ledger) for slot in search.slots]
        metrics = [{} if slot is None else dict(slot.metrics) for slot in slots]
        seeds = [(slot, log_id(ledger.folder.name, slot.key)) for slot in slots if slot is not None]
        logs = {seed.key: log for seed, log in seeds if seed.state is State.COMPLETE}
        names = [None if slot is None else logs.get(slot.key) for slot in slots]
        params = self.trainings.job(seeds[0][1], seeds[0][0].job)[0] if seeds else {}
        trainings = [
            self._seed_result(tuned_cell.cell, ledger, seed, log, params) for seed, log in seeds if seed.ended
        ]
        reasons = tuned_cell.reasons(ledger)
        slot_seeds = [None if slot is None else slot.job["train"]["seed"] for slot in slots]
        result = self._cell_result(
            tuned_cell.cell, tuned_cell.data, slot_seeds, metrics, names, reasons, params, trainings
        )
        return replace(result, settings=tuned_cell.settings(ledger), search=tuned_cell.result(ledger))

    def _seed_result(
        self, cell: Cell, ledger: Ledger, seed: Entry, log: str, shared_params: Mapping[str, Any]
    ) -> TrainingResult:
        """Returns the result of a tuned cell's training on a fresh seed, with the blocks of all figures."""
        result = self.trainings.build(seed, log, shared_params)
        blocks = _read_blocks(cell, training_folder(ledger.folder, seed.key), dict(result.metrics))
        return replace(result, blocks={**result.blocks, **blocks})

    def _cell_result(
        self,
        cell: Cell,
        data: DatasetInfo,
        seeds: Sequence[int | None],
        metrics: Sequence[Metrics],
        names: Sequence[str | None],
        reasons: list[str],
        params: Mapping[str, Any],
        trainings: Sequence[TrainingResult],
    ) -> CellResult:
        table = self._plan.table

        def values(metric: str) -> tuple[float | None, ...]:
            return tuple(scale_metric(run_metrics.get(metric), table.unit) for run_metrics in metrics)

        figures = tuple(
            FigureResult(
                name=figure.name,
                metric=figure.metric,
                printed=figure.printed,
                values=values(figure.metric),
                tolerance=self._plan.tolerance(figure.name),
                digits=table.digits_of(figure.name),
                validation=values(figure.metric.replace("test/", "val/")),
            )
            for figure in cell.figures
        )
        problems = [
            f"{figure.metric} is not a number with seed {seed}"
            for figure in figures
            for seed, value, run_metrics in zip(seeds, figure.values, metrics, strict=True)
            if value is None and run_metrics
        ]
        tags = [
            self.trainings.tags(training.log) for training in trainings if training.state is State.COMPLETE
        ]
        origin = cell_origin(cell, table.seed_keys, data, tags)
        return CellResult(
            row=cell.row,
            column=cell.column,
            id=cell.id,
            figures=figures,
            runs=tuple(names),
            reasons=tuple(dict.fromkeys([*reasons, *problems])),
            data=rows_seen(cell.jobs[0], table.seed_keys, origin.fingerprint),
            test_rows=data.rows.get("test", 0),
            baseline=cell.jobs[0].baseline is not None,
            origin=origin,
            params=params,
            trainings=tuple(trainings),
            neighbours=bool(cell.neighbours),
        )

    def _read_metrics(self, cell: Cell, seed: int, folder: Path) -> Metrics:
        """Returns a run's metrics; k-NN with `cell.neighbours` is computed from stored embeddings."""
        try:
            tree = json.loads((folder / RESULT).read_text())
            metrics = {name: float(value) for name, value in tree.items()}
        except (OSError, ValueError, TypeError, AttributeError) as error:
            raise UserError("the run's figures cannot be read", file=folder / RESULT, found=error) from None
        knn = cell.seed_job(seed).evaluation.knn
        if not cell.neighbours or knn is None:
            return metrics
        other_metrics = {name: value for name, value in metrics.items() if not name.startswith("knn/")}
        return other_metrics | StoredRun.read(folder, self._job_data(cell, seed)).metrics(setting_of(knn))

    def _job_data(self, cell: Cell, seed: int) -> JobData:
        """Returns the data of a run, which is cached since opening takes a while and cells share runs."""
        name = job_hash(cell.jobs[seed])
        if name not in self._job_data_cache:
            self._job_data_cache[name] = JobData.of(cell.jobs[seed], self._home, verify=False)
        return self._job_data_cache[name]


def _read_blocks(cell: Cell, folder: Path, metrics: Metrics) -> dict[str, tuple[float, ...]]:
    """Returns the jackknife blocks of the cell's metrics, but those of neighbours other than the run's."""
    blocks = blocks_of(folder, [figure.metric for figure in cell.figures if figure.metric in metrics])
    return {
        name: values for name, values in blocks.items() if not (cell.neighbours and name.startswith("knn/"))
    }
