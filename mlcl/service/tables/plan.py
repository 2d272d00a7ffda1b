"""The plan of a table: its file and the command's options, with checks of its metrics and data."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from mlcl.config import JobConfig, covers, parse_override
from mlcl.config.section import LONGEST_NAME
from mlcl.config.space.search import HALF_SUFFIX
from mlcl.config.table.cells import Cell, cells_of
from mlcl.config.table.schema import Table, table_files
from mlcl.data import SOURCES, DatasetInfo
from mlcl.errors import UserError, did_you_mean
from mlcl.evaluation import METRICS, embedding_metrics, metric_names
from mlcl.service.engine.packing import Resources
from mlcl.training.job_data import JobData
from mlcl.training.transfer import unseen_names

SPLITS = ("val", "test")


@dataclass(frozen=True)
class TablePlan:
    """A table with the options of a command.

    `scale` names a preset of the table's file. `only` has patterns of cells, by default all. `data` maps
    names of data sources to paths of their files, and `overrides` job keys to values that every cell gets.
    `figures` is the folder to which the figures of complete cells are written.
    """

    table: Table
    file: Path
    scale: str | None = None
    seeds: int | None = None
    only: Sequence[str] = ()
    data: Mapping[str, str] = field(default_factory=dict)
    overrides: Mapping[str, Any] = field(default_factory=dict)
    resources: Resources = field(default_factory=Resources)
    figures: Path | None = None

    def __post_init__(self) -> None:
        if len(self.name) > LONGEST_NAME:
            allowed = f"a name of at most {LONGEST_NAME} characters, with @SCALE"
            raise UserError(
                "the file's name names the table", file=self.file, found=self.name, allowed=allowed
            )

    @property
    def name(self) -> str:
        """The name of the table: the name of its file, followed by `@SCALE` if a scale is set."""
        return self.file.stem if self.scale is None else f"{self.file.stem}@{self.scale}"

    @property
    def command(self) -> str:
        """The command line that reproduces this table, without options for resources."""
        is_packaged = self.file in table_files()
        words = ["mlcl", "reproduce", self.file.stem if is_packaged else str(self.file)]
        words += [] if self.scale is None else ["--scale", self.scale]
        words += [] if self.seeds is None else ["--seeds", str(self.seeds)]
        for option, values in (("--only", self.only), ("--data", map("=".join, self.data.items()))):
            words += [word for value in values for word in (option, value)]
        words += [f"{key}={_quote_value(value)}" for key, value in self.overrides.items()]
        return shlex.join(words)

    @property
    def about(self) -> str:
        """The text of the table file on differences to the paper: of the scale, then of the table."""
        scale = "" if self.scale is None else self.table.scales[self.scale].about
        return " ".join(part for part in (scale, self.table.about) if part)

    def tolerance(self, figure: str) -> float | None:
        """Returns the largest difference between our mean and the printed figure that counts as equal.

        None if the table sets no tolerance for this figure, or an override changes more than a path of data
        or what is logged, so that the setting is not that of the paper.
        """
        overrides = {key: value for key, value in self.overrides.items() if not covers("tracking", key)}
        differs = any(not self._is_place(key, value) for key, value in overrides.items())
        return None if differs else self.table.tolerance_of(figure, self.scale)

    def _is_place(self, key: str, value: object) -> bool:
        """Whether an override only says where data is: its key is one of `places`, and the path exists."""
        named = any(covers(place, key) for place in self.table.places)
        return named and isinstance(value, str) and Path(value).expanduser().exists()

    @cached_property
    def cells(self) -> list[Cell]:
        """The cells of the table; only the selected ones if `only` is set."""
        return cells_of(
            self.table,
            self.file,
            scale=self.scale,
            seeds=self.seeds,
            only=self.only,
            data=self.data,
            overrides=self.overrides,
        )


def _quote_value(value: Any) -> str:
    """Returns a text that is read back as this value; one that would be read as another value is quoted."""
    with suppress(UserError):
        if isinstance(value, str) and parse_override(f"key={value}")[1] == value:
            return value
    return json.dumps(value)


def check_metrics(cell: Cell, job_data: JobData, file: Path, *, races_choose: bool = False) -> None:
    """Raises UserError if the table shows a metric that the runs of a cell will not have.

    With `races_choose`, races choose the neighbours, and runs have no metrics `knn_best/`.
    """
    names = [name for name in run_metrics(job_data) if not (races_choose and name.startswith("knn_best/"))]
    if cell.neighbours:
        # Metrics at other neighbour settings are computed from stored embeddings, but not for coarser levels.
        coarse_names = {f"accuracy_{level}" for level in _coarser_levels(job_data)}
        names = [
            name
            for name in names
            if not (name.startswith("knn/") and name.rpartition("/")[2] in coarse_names)
        ]
    for figure in cell.figures:
        if figure.metric not in names:
            raise UserError(
                f"no run of cell {cell.id} has this metric{did_you_mean(figure.metric, names)}",
                file=file,
                key="metrics",
                found=figure.metric,
                allowed=names,
            )


def run_metrics(job_data: JobData) -> list[str]:
    """Returns the names of the metrics that a run of a job will have on validation and test."""
    job = job_data.job
    names = [*_classifier_metrics(job_data), *(f"accuracy_{level}" for level in _coarser_levels(job_data))]
    if job.baseline is not None:
        return [f"{split}/{name}" for split in SPLITS for name in names]
    neighbour_names = [*names, "neighbour_overlap"] if job_data.task == "multi_label" else names
    embedding_names = [metric.name for metric in embedding_metrics(job.evaluation.metrics)]
    families = {"": [*names, *embedding_names]}
    if job.evaluation.ensemble is not None:
        families["ensemble/"] = names
    if job.evaluation.knn is not None:
        families["knn/"] = neighbour_names
        if job.evaluation.knn.grid is not None:
            families["knn_best/"] = neighbour_names
    if job.evaluation.probe is not None and job.objective.classifier_weight > 0:
        families["probe/"] = names  # in two phases the probe is the classifier
    if job_data.transfer is not None:
        space = job_data.transfer.space
        families["transfer/"] = list(metric_names(job_data.transfer.task, space.aspects, space.n_classes))
    unseen_metrics = unseen_names(job_data.dataset)
    return unseen_metrics + [
        f"{family}{split}/{name}" for family, all_ in families.items() for split in SPLITS for name in all_
    ]


def _classifier_metrics(job_data: JobData) -> tuple[str, ...]:
    space = job_data.dataset.info.space(job_data.job.objective.classifier.labels)
    groups = job_data.job.evaluation.metrics
    names = metric_names(job_data.task, space.aspects, space.n_classes, groups)
    if job_data.task != "multi_label" or isinstance(job_data.job.evaluation.threshold, float):
        return names
    return (*names, *(f"{name}{HALF_SUFFIX}" for name in names if METRICS[name].thresholded))


def _coarser_levels(job_data: JobData) -> list[str]:
    """Returns the coarser levels, if the classifier's labels are a level of a hierarchy."""
    info: DatasetInfo = job_data.dataset.info
    labels = info.own_name(job_data.job.objective.classifier.labels)
    single = info.space(labels).kind == "single"
    hierarchies = [space.levels for space in info.label_spaces.values() if single and labels in space.levels]
    coarser_levels = (level for levels in hierarchies for level in levels[: levels.index(labels)])
    return list(dict.fromkeys(coarser_levels))


def check_sources(jobs: Sequence[JobConfig], data: Mapping[str, str], file: Path) -> None:
    """Raises UserError if `data` lacks the files of a source, or has files for a source that takes none."""
    for source, options in (pair for job in jobs for pair in _job_sources(job)):
        if source in data and "path" in options and not _takes_files(source):
            raise UserError(
                "this source comes with its package and takes no files",
                key="--data",
                found=f"{source}={data[source]}",
                allowed="a prepared folder",
            )
    missing_by_job = [
        [source for source, options in _job_sources(job) if _lacks_files(source, options)] for job in jobs
    ]
    missing_sources = list(dict.fromkeys(source for sources in missing_by_job for source in sources))
    if missing_sources:
        hint = "" if all(missing_by_job) else ", or --only with cells of other data"
        raise UserError(
            f"needs files of {', '.join(missing_sources)}: docs/data.md says what to get",
            file=file,
            key="--data",
            allowed=places(missing_sources) + hint,
        )


def check_prepared(job_data: JobData, data: Mapping[str, str]) -> None:
    """Raises UserError if the path that `data` gives for a source is a prepared folder of another source."""
    job, transfer = job_data.job, job_data.transfer
    folders = [(job.data.path, job_data.dataset.info.name)]
    if transfer is not None:
        folders.append((transfer.config.path, transfer.dataset.info.name))
    for path, name in folders:
        sources = [source for source, place in data.items() if path in (place, str(Path(place).expanduser()))]
        if name in SOURCES and sources and name not in sources:
            raise UserError(
                "a prepared folder of another source",
                file=path,
                key="--data",
                found=name,
                allowed=", ".join(sources),
            )


def download_hint(job: JobConfig) -> str | None:
    """Returns the `--data` options that replace downloads of a job by files; None if it downloads nothing."""
    sources = [
        source for source, options in _job_sources(job) if _takes_files(source) and "path" not in options
    ]
    return places(sources) or None


def places(sources: Sequence[str]) -> str:
    """Returns the options that give the files of sources, as `--data NAME=PLACE ...`."""
    return " ".join(f"--data {source}=PLACE" for source in sources)


def _job_sources(job: JobConfig) -> list[tuple[str, Mapping[str, object]]]:
    sections = (job.data, job.evaluation.transfer_to)
    return [
        (section.source, section.options)
        for section in sections
        if section and section.source and section.source in SOURCES
    ]


def _takes_files(source: str) -> bool:
    return "path" in SOURCES[source].options.model_fields


def _lacks_files(source: str, options: Mapping[str, object]) -> bool:
    path_field = SOURCES[source].options.model_fields.get("path")
    return path_field is not None and path_field.is_required() and "path" not in options
