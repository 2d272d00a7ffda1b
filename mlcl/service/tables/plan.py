"""What a table needs: its trainings, which of them are done, and whether all of it can be run."""

from __future__ import annotations

import hashlib
import json
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from mlcl.config import JobConfig, covers, dump_job, job_hash
from mlcl.config.table.cells import Cell, cells_of
from mlcl.config.table.schema import FOLDER, Table
from mlcl.data import DatasetInfo
from mlcl.errors import UserError
from mlcl.service.engine.packing import Resources
from mlcl.service.tables.table_checks import check_metrics, check_prepared, check_sources, download_hint
from mlcl.store import RunFolder, RunFolders
from mlcl.tracking import State
from mlcl.training.job_data import JobData, open_dataset
from mlcl.training.run_files import RESULT

Key = tuple[str, str]
"""What tells a run from another: the hash of its job and the fingerprint of its data."""
ALIKE = ("workers", "device")
"""Keys of `train` that the trainings of a table share, for one packing holds for all of them."""


@dataclass(frozen=True)
class TablePlan:
    """A table as it was asked for.

    `scale` names a preset of its file; `data` says where the files of a source are; `overrides` change
    every job.
    """

    table: Table
    file: Path
    scale: str | None = None
    seeds: int | None = None
    only: Sequence[str] = ()
    data: Mapping[str, str] = field(default_factory=dict)
    overrides: Mapping[str, Any] = field(default_factory=dict)
    resources: Resources = field(default_factory=Resources)

    @property
    def name(self) -> str:
        """The file's name, with the scale."""
        return self.file.stem if self.scale is None else f"{self.file.stem}@{self.scale}"

    @property
    def command(self) -> str:
        """What asks for the same figures again, but for the share of a process."""
        known = self.file.parent == FOLDER and self.file.suffix == ".yaml"
        words = ["mlcl", "reproduce", self.file.stem if known else str(self.file)]
        words += [] if self.scale is None else ["--scale", self.scale]
        words += [] if self.seeds is None else ["--seeds", str(self.seeds)]
        for option, values in (("--only", self.only), ("--data", map("=".join, self.data.items()))):
            words += [word for value in values for word in (option, value)]
        words += [f"{key}={_text(value)}" for key, value in self.overrides.items()]
        return shlex.join(words)

    @property
    def about(self) -> str:
        """What is known to differ from the paper."""
        scale = "" if self.scale is None else self.table.scales[self.scale].about
        return " ".join(part for part in (scale, self.table.about) if part)

    def tolerance(self, figure: str) -> float | None:
        """How far a mean may be from a printed figure; None where figures are shown and not judged.

        With overrides of more than places the figures are not those of the paper's setting.
        """
        elsewhere = any(not self._is_place(key, value) for key, value in self.overrides.items())
        return None if elsewhere else self.table.tolerance_of(figure, self.scale)

    def _is_place(self, key: str, value: object) -> bool:
        """Whether an override says where something lies; another name or null would be another setting."""
        named = any(covers(place, key) for place in self.table.places)
        return named and isinstance(value, str) and Path(value).expanduser().exists()

    @cached_property
    def cells(self) -> list[Cell]:
        """The cells that were asked for."""
        return cells_of(
            self.table,
            self.file,
            scale=self.scale,
            seeds=self.seeds,
            only=self.only,
            data=self.data,
            overrides=self.overrides,
        )


@dataclass(frozen=True)
class TableRun:
    """One training: a job on its data. Several cells may share it."""

    label: str
    job: JobConfig
    data: DatasetInfo

    @property
    def key(self) -> Key:
        """What tells a finished run from another."""
        return job_hash(self.job), self.data.fingerprint


def check_table(plan: TablePlan, home: Path) -> list[TableRun]:
    """The trainings of cells that are not tuned, each once: the first seed of each cell, then the second.

    Raises UserError before Ray or MLflow are touched. The first seed of a cell is checked whole; the others
    differ from it in their seed alone.
    """
    check_sources([cell.jobs[0] for cell in plan.cells], plan.data, plan.file)
    infos: dict[str, DatasetInfo] = {}
    for cell in plan.cells:
        job_data = _checked(cell, home, verify=_place(cell.jobs[0]) not in infos)
        infos[_place(cell.jobs[0])] = job_data.dataset.info
        check_prepared(job_data, plan.data)
        if cell.tuning is None:
            check_metrics(cell, job_data, plan.file)
    plain = [cell for cell in plan.cells if cell.tuning is None]
    runs: dict[Key, TableRun] = {}
    # Seed by seed: a stop, or a row that fails, leaves something in every other cell.
    for seed in range(len(plain[0].jobs) if plain else 0):
        for cell in plain:
            job = cell.jobs[seed]
            place = _place(job)
            if place not in infos:
                infos[place] = open_dataset(job, home, verify=True).info
            run = TableRun(f"{cell.row}, {cell.column}, seed {seed}", job, infos[place])
            runs.setdefault(run.key, run)
    _check_processes(plan)
    return list(runs.values())


def _check_processes(plan: TablePlan) -> None:
    for name in ALIKE:
        found = sorted({str(getattr(job.train, name)) for cell in plan.cells for job in cell.jobs})
        if len(found) > 1:
            problem = "the trainings of a table share this key"
            raise UserError(problem, file=plan.file, key=f"train.{name}", found=found, allowed="one value")
    plan.resources.check(plan.cells[0].jobs[0])


def identity(plan: TablePlan, runs: Sequence[TableRun], tuned: Sequence[object] = ()) -> str:
    """Sixteen hex digits: the same table, asked for in the same way, on the same data.

    `tuned` has what tells the tuned cells from others.
    """
    cells = [[cell.id, dict(cell.neighbours)] for cell in plan.cells]
    keys = sorted(run.key for run in runs)
    limits = {figure.name: plan.tolerance(figure.name) for cell in plan.cells for figure in cell.figures}
    lines = {"__all__": {"tune", "columns"}}  # which the cells show
    table = plan.table.model_dump(
        mode="json",
        exclude={
            "tune": True,
            "ranks": True,
            "models": True,
            "rows": lines,
            "columns": lines,
            "scales": lines,
        },
    )
    content = [table, plan.about, limits, cells, keys, *tuned]
    return hashlib.sha256(json.dumps(content, sort_keys=True, default=str).encode()).hexdigest()[:16]


def known_folder(home: Path, name: str, asked: str) -> RunFolder | None:
    """The folder of the table of this name that was asked for in the same way (`identity`)."""
    records = RunFolders(home, "tables").records()
    found = (folder for folder, its in records if (its.name, its.job_hash) == (name, asked))
    return next(found, None)


def finished(home: Path) -> dict[Key, RunFolder]:
    """The complete runs under `home` by job and data, the latest of equals."""
    found: dict[Key, RunFolder] = {}
    for folder, record in RunFolders(home).records():
        if record.state is State.COMPLETE and (folder.path / RESULT).is_file():
            found.setdefault((record.job_hash, record.fingerprint), folder)
    return found


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _place(job: JobConfig) -> str:
    """Names a job's data set, before it is opened."""
    data = dump_job(job)["data"]
    keys = ("source", "path", "options", "split_seed", "hold_out")
    return json.dumps([data[key] for key in keys], sort_keys=True)


def _checked(cell: Cell, home: Path, *, verify: bool) -> JobData:
    try:
        return JobData.of(cell.jobs[0], home, verify=verify)
    except UserError as error:
        problem, allowed = f"{error.problem} (cell {cell.id})", error.allowed
        if error.key is None and error.file is None and allowed is None:
            allowed = download_hint(cell.jobs[0])
        raise error.but(problem=problem, allowed=allowed) from None
