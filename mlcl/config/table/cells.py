"""From a table to its cells: a checked job for every seed of every row and column."""

from __future__ import annotations

import fnmatch
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mlcl.config.job import JobConfig, covers, dump_job, job_hash
from mlcl.config.loader import apply_overrides
from mlcl.config.section import validate
from mlcl.config.table.schema import Line, Scale, Table, slug
from mlcl.config.table.tree import PAPER, PLACES, cell_tree, check_places, placed, places_of
from mlcl.config.table.tuning import Tuning, read_tuning, tune_of
from mlcl.errors import UserError


@dataclass(frozen=True)
class Figure:
    """One number of a cell: its name, the run's metric, and what the paper prints, if anything."""

    name: str
    metric: str
    printed: float | None


@dataclass(frozen=True)
class Cell:
    """A row and a column: one job a seed.

    `neighbours` are the settings of the kNN that this cell asks for (k, lambda, temperature), where they are
    other than the job's: they need no training of their own. With a `tuning` the first job is searched, and
    there is one job for each seed of the confirmation.
    """

    row: str
    column: str
    jobs: tuple[JobConfig, ...]
    figures: tuple[Figure, ...]
    neighbours: Mapping[str, float] = field(default_factory=dict)
    tuning: Tuning | None = None

    @property
    def id(self) -> str:
        """`row/column`, in lower case and without blanks, for the command line."""
        return f"{slug(self.row)}/{slug(self.column)}"

    def asked(self, seed: int) -> JobConfig:
        """A seed's job with the cell's own neighbours: its figures are what a run of this would have."""
        settings = {f"evaluation.knn.{name}": value for name, value in self.neighbours.items()}
        return validate(JobConfig, apply_overrides(dump_job(self.jobs[seed]), settings), None)


def cells_of(
    table: Table,
    file: Path,
    *,
    scale: str | None = None,
    seeds: int | None = None,
    only: Sequence[str] = (),
    data: Mapping[str, str] | None = None,
    overrides: Mapping[str, Any] | None = None,
) -> list[Cell]:
    """The cells of a table, row by row.

    `scale` picks a preset, `seeds` another number of seeds, `only` cells by patterns over their ids (`*`; a
    row's or a column's name alone will do). `data` says where the files of a source are, or a prepared
    folder, for all columns or, by the name of a column, for one; `overrides` change every job. Raises
    UserError for whatever is unknown, and for a job that is wrong, naming the cell.
    """
    data, overrides = data or {}, overrides or {}
    _check_overrides(table, overrides)
    preset = _scale(table, file, scale)
    rows, columns = preset.rows or _printed(table.rows), preset.columns or _printed(table.columns)
    pairs = table.pairs(rows, columns)
    if not pairs:
        raise UserError("no row has a cell in these columns", file=file, key="rows", found=list(rows))
    wanted = _only(pairs, only, file)
    trees = {
        (row, column): cell_tree(table, file, table.rows[row], table.columns[column], preset)
        for row, column in wanted
    }
    if data:
        # A source of another scale's cells, or of those that `only` leaves out, is no mistake.
        asked = [apply_overrides(tree, overrides) for tree, _ in trees.values()]
        others = [apply_overrides(tree, overrides) for tree, _ in _whole(table, file)]
        check_places(data, asked, others, [slug(column) for column in table.columns])
    number = seeds or preset.seeds or table.seeds
    cells = []
    for (row, column), (tree, neighbours) in trees.items():
        name = f"{slug(row)}/{slug(column)}"
        tune = tune_of(table, table.rows[row], table.columns[column], preset)
        count = seeds or (tune and tune.seeds) or number
        places = places_of(tree, slug(column), data)
        jobs = tuple(_job(tree, table, seed, places, overrides, file, name) for seed in range(count))
        tuning = None if tune is None else read_tuning(tune, table, file, jobs[0])
        free = _free(neighbours, overrides)
        cell = Cell(row, column, jobs, _figures(table, row, column, file), free, tuning)
        _check(cell, file)
        cells.append(cell)
    return cells


def _scale(table: Table, file: Path, name: str | None) -> Scale:
    if name is None:
        return PAPER
    if name not in table.scales:
        raise UserError(
            "no such scale", file=file, key="--scale", found=name, allowed=list(table.scales) or "none"
        )
    return table.scales[name]


def _printed(lines: Mapping[str, Line]) -> tuple[str, ...]:
    return tuple(name for name, line in lines.items() if not line.alternative)


def _only(pairs: list[tuple[str, str]], only: Sequence[str], file: Path) -> list[tuple[str, str]]:
    if not only:
        return pairs
    found: list[tuple[str, str]] = []
    for pattern in only:
        matching = [pair for pair in pairs if _matches(pair, pattern)]
        if not matching:
            ids = [f"{slug(row)}/{slug(column)}" for row, column in pairs]
            raise UserError("no such cell", file=file, key="--only", found=pattern, allowed=ids)
        found += matching
    return [pair for pair in pairs if pair in found]


def _matches(pair: tuple[str, str], pattern: str) -> bool:
    row, column = (slug(part) for part in pair)
    names = (f"{row}/{column}", row, column)
    return pattern in pair or any(fnmatch.fnmatchcase(name, pattern.lower()) for name in names)


def _whole(table: Table, file: Path) -> list[tuple[dict[str, Any], dict[str, float]]]:
    pairs = table.pairs(table.rows, table.columns)
    return [cell_tree(table, file, table.rows[row], table.columns[column]) for row, column in pairs]


def _free(neighbours: Mapping[str, float], overrides: Mapping[str, Any]) -> dict[str, float]:
    """The cell's own settings of the neighbours that no override of the command line replaces."""
    given = {name for name in neighbours for key in overrides if covers(key, f"evaluation.knn.{name}")}
    return {name: value for name, value in neighbours.items() if name not in given}


def _check_overrides(table: Table, overrides: Mapping[str, Any]) -> None:
    """Refuses overrides of the seeds, with which one run would count as several."""
    for own in ("experiment", *table.seed_keys):
        for key in overrides:
            if covers(key, own) or covers(own, key):
                raise UserError(f"the table itself sets {own}", key=key, allowed="any other key, and --seeds")


def _job(
    tree: dict[str, Any],
    table: Table,
    seed: int,
    data: Mapping[str, str],
    overrides: Mapping[str, Any],
    file: Path,
    cell: str,
) -> JobConfig:
    fixed = {"experiment": table.experiment, **dict.fromkeys(table.seed_keys, seed)}
    try:
        seeded = apply_overrides(tree, {**fixed, **overrides})
        for section in PLACES:
            seeded = placed(seeded, section, data)
        return validate(JobConfig, seeded, None)
    except UserError as error:
        # What is wrong in an override is not wrong in the file.
        raise _of_cell(error, cell, None if error.key in overrides else file) from None


def _check(cell: Cell, file: Path) -> None:
    """Raises UserError where two seeds give one job, or where the neighbours would cost a training."""
    job = cell.jobs[0]
    if len({job_hash(job) for job in cell.jobs}) < len(cell.jobs):
        raise UserError(f"the seeds of cell {cell.id} are one and the same job", file=file, key="seed_keys")
    if not cell.neighbours:
        return
    if cell.tuning is not None:
        raise UserError(
            f"a search chooses the neighbours itself (cell {cell.id})", file=file,
            key="set", found=list(cell.neighbours), allowed="these keys in the space",
        )  # fmt: skip
    knn, train = job.evaluation.knn, job.train
    if knn is None:
        raise UserError(f"the job has no neighbours to set (cell {cell.id})", file=file, key="evaluation.knn")
    alone = job.evaluation.metric.startswith("knn/") or job.objective.classifier_weight == 0
    if train.patience is not None and alone:
        raise UserError(
            f"the neighbours decide when this training ends (cell {cell.id})", file=file,
            key="train.patience", found=train.patience, allowed="evaluation.knn set as a whole, or null",
        )  # fmt: skip
    try:
        cell.asked(0)
    except UserError as error:
        raise _of_cell(error, cell.id, file) from None


def _of_cell(error: UserError, cell: str, file: Path | None) -> UserError:
    return error.but(problem=f"{error.problem} (cell {cell})", file=file)


def _figures(table: Table, row: str, column: str, file: Path) -> tuple[Figure, ...]:
    lines: tuple[Line, Line] = (table.rows[row], table.columns[column])
    metrics = lines[1].metrics or lines[0].metrics or table.metrics
    printed = table.paper.get(row, {}).get(column) or (None,) * len(metrics)
    if len(printed) != len(metrics):
        raise UserError(
            "needs a figure for each metric",
            file=file,
            key=f"paper.{row}.{column}",
            found=len(printed),
            allowed=len(metrics),
        )
    return tuple(
        Figure(name, metric, figure) for (name, metric), figure in zip(metrics.items(), printed, strict=True)
    )
