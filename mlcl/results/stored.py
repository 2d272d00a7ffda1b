"""Reads the stored results of sweeps and tables: from their folder if it is on this machine, else MLflow."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from mlcl.results.cell_result import CellResult
from mlcl.results.documents import read_result
from mlcl.results.runs import Runs
from mlcl.results.sweep_result import SweepResult
from mlcl.results.table_result import TableResult
from mlcl.results.training_result import SettingResult, TrainingResult
from mlcl.tracking.names import SWEEP_JSON, TABLE_JSON, Tag

if TYPE_CHECKING:
    from mlflow.entities import Run

ResultT = TypeVar("ResultT", SweepResult, TableResult)
NEIGHBOURS = "knn/"
"""The prefix of the metrics that are computed with the k-NN parameters of the run's job."""


def read_sweep(runs: Runs, run: Run) -> SweepResult:
    """Reads the result of a sweep, and adds the MLflow ids and metrics of its trainings' runs.

    Args:
        runs: The tracking store.
        run: The run of the sweep, from `Runs.require_group`.

    Raises:
        UserError: No result has been stored yet, or it is damaged.

    Example:
        >>> sweep = read_sweep(runs, runs.require_group("my-sweep"))
        >>> sweep.best.label, sweep.best.score
        ('trial 3', 0.91)
    """
    result = _read(runs, run, SweepResult, "sweeps", SWEEP_JSON)
    trainings = [*result.all_trials, *(seed for setting in result.settings for seed in setting.seeds)]
    found = runs.by_log(result.id, [each.log for each in trainings])
    return replace(
        result,
        run_id=str(run.info.run_id),
        trials=_with_runs(result.trials, found),
        dropped=_with_runs(result.dropped, found),
        baseline_trials=_with_runs(result.baseline_trials, found),
        earlier_baseline_trials=_with_runs(result.earlier_baseline_trials, found),
        confirmations=tuple(_setting(each, found) for each in result.confirmations),
        earlier=tuple(_setting(each, found) for each in result.earlier),
    )


def read_table(runs: Runs, run: Run, only: str | None = None) -> TableResult:
    """Reads the result of a table, and adds the MLflow ids and metrics of its cells' runs.

    Args:
        runs: The tracking store.
        run: The run of the table, from `Runs.require_group`.
        only: The label of the one cell for which ids and metrics are added. Default: all cells.

    Raises:
        UserError: No result has been stored yet, or it is damaged.
    """
    result = _read(runs, run, TableResult, "tables", TABLE_JSON)
    asked = [cell for cell in result.cells if only in (None, cell.label)]
    found = runs.by_log(result.id, [each.log for cell in asked for each in cell.trainings]) if asked else {}
    return replace(
        result, run_id=str(run.info.run_id), cells=tuple(_cell(cell, found) for cell in result.cells)
    )


def _read(runs: Runs, run: Run, kind: type[ResultT], folder: str, name: str) -> ResultT:
    file = runs.home / folder / run.data.tags[Tag.ID] / name
    if file.is_file():
        return replace(read_result(kind, file.read_text(encoding="utf-8"), file), folder=file.parent)
    return read_result(kind, runs.text(run, name), Path(name))


def _setting(setting: SettingResult, found: Mapping[str, Run]) -> SettingResult:
    run = found.get(setting.log)
    return replace(setting, run_id=run and str(run.info.run_id), seeds=_with_runs(setting.seeds, found))


def _cell(cell: CellResult, found: Mapping[str, Run]) -> CellResult:
    return replace(cell, trainings=_with_runs(cell.trainings, found, neighbours=not cell.neighbours))


def _with_runs(
    trainings: Iterable[TrainingResult], found: Mapping[str, Run], *, neighbours: bool = True
) -> tuple[TrainingResult, ...]:
    """Returns the trainings with the ids of their runs and the last value of each metric that a run logged.

    Without `neighbours`, metrics that begin with `knn/` are left out: the cell has other k-NN parameters.
    """
    return tuple(_with_run(each, found.get(each.log), neighbours=neighbours) for each in trainings)


def _with_run(training: TrainingResult, run: Run | None, *, neighbours: bool) -> TrainingResult:
    if run is None:
        return replace(training, run_id=None)
    logged = run.data.metrics.items()
    metrics = {name: value for name, value in logged if neighbours or not name.startswith(NEIGHBOURS)}
    return replace(training, run_id=str(run.info.run_id), metrics={**metrics, **training.metrics})
