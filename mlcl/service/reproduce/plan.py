"""What a table needs: its trainings, which of them are done, and whether all of it can be run."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from mlcl.config import JobConfig, dump_job, job_hash
from mlcl.config.table import Cell, Table, cells_of
from mlcl.data import DatasetInfo
from mlcl.errors import UserError
from mlcl.evaluation import metric_names
from mlcl.service.folders import RunFolder, RunFolders
from mlcl.tracking import State
from mlcl.training.files import RESULT
from mlcl.training.material import Material, open_dataset

FAMILIES = ("", "knn/", "knn_best/", "probe/", "transfer/")
"""What a run evaluates besides its classifier, each under a prefix of its own."""


@dataclass(frozen=True)
class TablePlan:
    """A table as it was asked for.

    `scale` names a preset of its file; `data` says where the files of a source are; `overrides` change
    every job. `cpus` and `gpus` are a process's share.
    """

    table: Table
    file: Path
    scale: str | None = None
    seeds: int | None = None
    only: Sequence[str] = ()
    data: Mapping[str, str] = field(default_factory=dict)
    overrides: Mapping[str, Any] = field(default_factory=dict)
    cpus: float = 1
    gpus: float | None = None

    @property
    def name(self) -> str:
        """The file's name, with the scale."""
        return self.file.stem if self.scale is None else f"{self.file.stem}@{self.scale}"

    @property
    def about(self) -> str:
        """What is known to differ from the paper."""
        scale = "" if self.scale is None else self.table.scales[self.scale].about
        return " ".join(part for part in (scale, self.table.about) if part)

    @property
    def tolerance(self) -> float | None:
        """How far a mean may be from a printed figure; None where figures are shown and not judged.

        With overrides, data of one's own choice aside, the figures are not those of the paper's setting.
        """
        if self.overrides:
            return None
        return self.table.tolerance if self.scale is None else self.table.scales[self.scale].tolerance

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

    @property
    def identity(self) -> str:
        """Sixteen hex digits: the same table under the same preset and overrides."""
        table = self.table.model_dump(mode="json")
        content = json.dumps([table, self.scale, dict(self.overrides)], sort_keys=True, default=str)
        return hashlib.sha256(content.encode()).hexdigest()[:16]


@dataclass(frozen=True)
class TableRun:
    """One training: a job on its data. Several cells may share it."""

    label: str
    job: JobConfig
    data: DatasetInfo
    metrics: tuple[str, ...]

    @property
    def key(self) -> tuple[str, str]:
        """What tells a finished run from another: the job and the data."""
        return job_hash(self.job), self.data.fingerprint


def check_table(plan: TablePlan, home: Path) -> list[TableRun]:
    """The trainings of all cells, each once. Raises UserError before Ray or MLflow are touched.

    The first seed of a cell is checked whole; the others differ from it in their seed alone.
    """
    infos: dict[str, DatasetInfo] = {}
    runs: dict[tuple[str, str], TableRun] = {}
    for cell in plan.cells:
        material = _checked(cell, home, verify=_place(cell.jobs[0]) not in infos)
        _check_metrics(plan, cell, material)
        for seed, job in enumerate(cell.jobs):
            place = _place(job)
            if place not in infos:
                infos[place] = open_dataset(job, home, verify=False).info
            label = f"{cell.row}, {cell.column}, seed {seed}"
            wanted = () if cell.neighbours else tuple(figure.metric for figure in cell.figures)
            run = TableRun(label, job, infos[place], wanted)
            known = runs.get(run.key)
            metrics = tuple(dict.fromkeys([*(known.metrics if known else ()), *wanted]))
            runs[run.key] = TableRun(known.label if known else label, job, infos[place], metrics)
    if len({job.train.workers for job in (run.job for run in runs.values())}) > 1:
        raise UserError("all cells of a table take equally many workers", file=plan.file, key="train.workers")
    return list(runs.values())


def finished(home: Path) -> dict[tuple[str, str], RunFolder]:
    """The complete runs under `home` by job and data, the latest of equals."""
    found: dict[tuple[str, str], RunFolder] = {}
    for folder, record in RunFolders(home).records():
        if record.state is State.COMPLETE and (folder.path / RESULT).is_file():
            found.setdefault((record.job_hash, record.fingerprint), folder)
    return found


def _place(job: JobConfig) -> str:
    """Names a job's data set, before it is opened."""
    data = dump_job(job)["data"]
    return json.dumps([data[key] for key in ("source", "path", "options", "split_seed")], sort_keys=True)


def _checked(cell: Cell, home: Path, *, verify: bool) -> Material:
    try:
        return Material.of(cell.jobs[0], home, verify=verify)
    except UserError as error:
        raise UserError(
            f"{error.problem} (cell {cell.id})",
            file=error.file,
            key=error.key,
            found=error.found,
            allowed=error.allowed,
        ) from None


def _check_metrics(plan: TablePlan, cell: Cell, material: Material) -> None:
    """Whether a run of this cell logs what the table wants to show."""
    space = material.dataset.info.space(cell.jobs[0].objective.classifier.labels)
    names = [*metric_names(material.task, space.aspects, space.n_classes), "neighbour_overlap"]
    if material.transfer is not None:
        other = material.transfer
        its = other.dataset.info.space(other.config.labels)
        names += metric_names(other.task, its.aspects, its.n_classes)
    for figure in cell.figures:
        head, _, name = figure.metric.rpartition("/")
        prefix, _, split = head.rpartition("/")
        family = f"{prefix}/" if prefix else ""
        levels = name.startswith("accuracy_")
        if split not in ("val", "test") or family not in FAMILIES or not (levels or name in names):
            raise UserError(
                f"no run of cell {cell.id} has this metric",
                file=plan.file,
                key="metrics",
                found=figure.metric,
                allowed=[f"{{{','.join(FAMILIES)}}}test/{name}" for name in dict.fromkeys(names)],
            )
        if family.startswith("knn") and cell.jobs[0].evaluation.knn is None:
            raise UserError(
                "needs evaluation.knn", file=plan.file, key="metrics", found=figure.metric, allowed=cell.id
            )
