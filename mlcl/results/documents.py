"""Reads and writes results as JSON: `sweep.json`, `table.json`, and the output of `--json`.

A stored result is read from its folder if that is on this machine, else from MLflow.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from pydantic import TypeAdapter, ValidationError

from mlcl.errors import UserError
from mlcl.files import replace_text
from mlcl.results.runs import Runs
from mlcl.results.sweep_result import SweepResult
from mlcl.results.table_result import TableResult
from mlcl.results.training_result import SettingResult, TrainingResult
from mlcl.store import State
from mlcl.tracking.names import SWEEP_JSON, TABLE_JSON, Tag

if TYPE_CHECKING:
    from mlflow.entities import Run

ResultT = TypeVar("ResultT", SweepResult, TableResult)
NEIGHBOURS = "knn/"
"""The prefix of the metrics that are computed with the k-NN parameters of the run's job."""


_ADAPTERS: dict[type, TypeAdapter[Any]] = {}
"""The Pydantic adapter of each type, cached, as building one takes longer than writing a result with it."""


def _adapter(kind: type[Any]) -> TypeAdapter[Any]:
    if kind not in _ADAPTERS:
        _ADAPTERS[kind] = TypeAdapter(kind)
    return _ADAPTERS[kind]


def document(value: Any) -> dict[str, Any]:
    """Returns a dataclass as a tree of dicts, lists and JSON values, with null for NaN and infinity.

    The tree of a result also has its computed fields, such as the mean of a figure or a sweep's verdicts.
    """
    tree: dict[str, Any] = json.loads(_adapter(type(value)).dump_json(value, by_alias=True))
    return tree


def write_result(result: SweepResult | TableResult) -> Path:
    """Writes `sweep.json` or `table.json` atomically to the result's folder and returns the file's path."""
    name = SWEEP_JSON if isinstance(result, SweepResult) else TABLE_JSON
    return _write(result.folder / name, document(result))


def _write(file: Path, tree: Mapping[str, Any]) -> Path:
    replace_text(file, json.dumps(tree, indent=1, allow_nan=False) + "\n")
    return file


def read_result(kind: type[ResultT], text: str, file: Path) -> ResultT:
    """Parses a result from the JSON text of `file`. For invalid text, raises UserError naming `file`."""
    try:
        result: ResultT = _adapter(kind).validate_json(text)
        return result
    except ValidationError as error:
        first_error = error.errors(include_url=False)[0]
        raise UserError(
            "is damaged, or was written by another mlcl",
            file=file,
            key=".".join(map(str, first_error["loc"])) or None,
            found=first_error["msg"],
            allowed="what the same command writes when it is run again",
        ) from None


def _no_results(file: Path) -> UserError:
    allowed = "what its command writes; after a kill, run the same command again"
    return UserError("has no results yet", file=file, allowed=allowed)


def local_sweep(folder: Path) -> SweepResult:
    """Reads the result of a sweep from `sweep.json` in its folder. Raises UserError where there is none."""
    file = folder / SWEEP_JSON
    try:
        text = file.read_text(encoding="utf-8")
    except OSError:
        raise _no_results(file) from None
    return replace(read_result(SweepResult, text, file), folder=folder)


def stop_sweep(folder: Path, reason: str) -> None:
    """Changes each state RUNNING in a killed sweep's `sweep.json` to STOPPED, and sets the sweep's reason.

    Does nothing if there is no such file, or it is damaged: the sweep's next command writes a new one.
    """
    file = folder / SWEEP_JSON
    with suppress(FileNotFoundError, ValueError, TypeError):
        tree = _mark_stopped(json.loads(file.read_text(encoding="utf-8")))
        _write(file, {**tree, "reason": reason})


def _mark_stopped(tree: Any) -> Any:
    if isinstance(tree, list):
        return [_mark_stopped(item) for item in tree]
    if not isinstance(tree, dict):
        return tree
    state = {"state": State.STOPPED} if tree.get("state") == State.RUNNING else {}
    return {key: _mark_stopped(value) for key, value in tree.items()} | state


def read_sweep(runs: Runs, run: Run) -> SweepResult:
    """Reads the result of the sweep of `run`, and adds the MLflow ids and metrics of its trainings' runs.

    Raises UserError where no result has been stored yet, or it is damaged.

    Example:
        >>> sweep = read_sweep(runs, runs.require_group("my-sweep"))
        >>> sweep.best.label, sweep.best.score
        ('trial 3', 0.91)
    """
    result = _read(runs, run, SweepResult, "sweeps", SWEEP_JSON)
    seeds = (seed for setting in result.settings for seed in setting.seeds)
    trainings = [*result.all_trials, *result.race_trainings, *seeds]
    runs_by_log = runs.by_log(result.id, [training.log for training in trainings])
    return replace(
        result,
        run_id=str(run.info.run_id),
        trials=_add_runs(result.trials, runs_by_log),
        dropped=_add_runs(result.dropped, runs_by_log),
        baseline_trials=_add_runs(result.baseline_trials, runs_by_log),
        earlier_baseline_trials=_add_runs(result.earlier_baseline_trials, runs_by_log),
        race_trainings=_add_runs(result.race_trainings, runs_by_log),
        confirmations=tuple(_add_setting_runs(setting, runs_by_log) for setting in result.confirmations),
        earlier=tuple(_add_setting_runs(setting, runs_by_log) for setting in result.earlier),
    )


def read_table(runs: Runs, run: Run, only: str | None = None) -> TableResult:
    """Reads the result of a table, and adds the MLflow ids and metrics of its cells' runs.

    With `only`, the label of a cell, those of other cells may be left out. Raises UserError where no result
    has been stored yet, or it is damaged.
    """
    result = _read(runs, run, TableResult, "tables", TABLE_JSON)
    needed_cells = [cell for cell in result.cells if only in (None, cell.label)]
    runs_by_log = (
        runs.by_log(result.id, [training.log for cell in needed_cells for training in cell.trainings])
        if needed_cells
        else {}
    )
    cells = tuple(
        replace(cell, trainings=_add_runs(cell.trainings, runs_by_log, neighbours=not cell.neighbours))
        for cell in result.cells
    )
    return replace(result, run_id=str(run.info.run_id), cells=cells)


def _read(runs: Runs, run: Run, kind: type[ResultT], folder: str, name: str) -> ResultT:
    file = runs.home / folder / run.data.tags[Tag.ID] / name
    if file.is_file():
        return replace(read_result(kind, file.read_text(encoding="utf-8"), file), folder=file.parent)
    try:
        text = runs.text(run, name)
    except UserError:
        if not file.parent.is_dir():
            raise
        # A kill before the first write leaves the folder without the file, and MLflow without the artifact.
        raise _no_results(file) from None
    return read_result(kind, text, Path(name))


def _add_setting_runs(setting: SettingResult, runs_by_log: Mapping[str, Run]) -> SettingResult:
    run = runs_by_log.get(setting.log)
    return replace(setting, run_id=run and str(run.info.run_id), seeds=_add_runs(setting.seeds, runs_by_log))


def _add_runs(
    trainings: Iterable[TrainingResult], runs_by_log: Mapping[str, Run], *, neighbours: bool = True
) -> tuple[TrainingResult, ...]:
    """Adds the ids and metrics of the trainings' runs; without `neighbours`, no metrics that begin `knn/`."""
    results = []
    for training in trainings:
        run = runs_by_log.get(training.log)
        logged = {} if run is None else run.data.metrics
        metrics = {
            name: value for name, value in logged.items() if neighbours or not name.startswith(NEIGHBOURS)
        }
        results.append(
            replace(training, run_id=run and str(run.info.run_id), metrics={**metrics, **training.metrics})
        )
    return tuple(results)
