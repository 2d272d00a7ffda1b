"""The cells of a table, each with a checked job for every seed and possibly a search for the best setting."""

from __future__ import annotations

import fnmatch
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mlcl.config.job import JobConfig, covers, dump_job
from mlcl.config.loader import apply_overrides, check_stars
from mlcl.config.section import validate
from mlcl.config.space.search import fresh_seeds_of
from mlcl.config.table.schema import Scale, Table, TableLine, Tune, slug
from mlcl.config.table.tree import PAPER, cell_tree, check_data, data_of, with_data
from mlcl.config.table.tuning import Tuning, check_controls, tune_of, tuning_of, with_controls
from mlcl.errors import UserError


@dataclass(frozen=True)
class Figure:
    """A number that a cell shows: its name, its metric in a run, and the paper's number, if it has one."""

    name: str
    metric: str
    printed: float | None


@dataclass(frozen=True)
class Cell:
    """A cell of a table, at a row and a column.

    Attributes:
        row: The name of the row.
        column: The name of the column.
        jobs: One job for each seed. If the cell has a `tuning`, the first job is searched, and the number of
            jobs is the number of fresh seeds.
        figures: The figures that the cell shows.
        neighbours: The values of post-hoc keys (`k`, `lambda`, `temperature`) that replace those of the job.
            They are applied to finished runs, which need not be trained again.
        tuning: The searches of the cell; None if the cell is not tuned.
    """

    row: str
    column: str
    jobs: tuple[JobConfig, ...]
    figures: tuple[Figure, ...]
    neighbours: Mapping[str, float] = field(default_factory=dict)
    tuning: Tuning | None = None

    @property
    def id(self) -> str:
        """The name of the cell on the command line: `row/column`, see `slug`."""
        return _cell_id((self.row, self.column))

    def seed_job(self, seed: int) -> JobConfig:
        """Returns the job of the seed at index `seed`, with the values in `neighbours`."""
        settings = {f"evaluation.knn.{name}": value for name, value in self.neighbours.items()}
        return validate(JobConfig, apply_overrides(dump_job(self.jobs[seed]), settings), None)


def data_places(texts: Sequence[str]) -> dict[str, str]:
    """Returns the paths of data by source or column from texts `SOURCE=PATH`; for others raises UserError."""
    places: dict[str, str] = {}
    for text in texts:
        source, _, place = text.partition("=")
        if not source or not place:
            allowed = "SOURCE=PLACE, COLUMN=PLACE"
            raise UserError("not SOURCE=PLACE", key="--data", found=text, allowed=allowed)
        if source in places:
            raise UserError("has two places", key="--data", found=source)
        places[source] = place
    return places


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
    """Returns the cells of a table, row by row.

    Args:
        table: The table.
        file: The table's file, to which the paths of jobs and spaces are relative.
        scale: The name of a preset. Default: the paper's setting.
        seeds: The number of seeds. Default: the table's.
        only: Patterns of cells to return; the name of a row or column matches all its cells. Default: all.
        data: Paths of a source's files or of a prepared data set, keyed by the name of the source or, for one
            column only, by the name of the column.
        overrides: Dotted keys and values that are set in every job.

    Raises:
        UserError: A name is unknown, or a cell's job is wrong.
    """
    data, overrides = data or {}, overrides or {}
    _check_overrides(table, overrides)
    preset = _find_scale(table, file, scale)
    rows, columns = preset.rows or _printed_names(table.rows), preset.columns or _printed_names(table.columns)
    pairs = table.pairs(rows, columns)
    if not pairs:
        raise UserError("no row has a cell in these columns", file=file, key="rows", found=list(rows))
    tunes = {(row, column): tune_of(table, row, column, preset) for row, column in pairs}
    trees = _cell_trees(table, file, with_controls(_select_pairs(pairs, only, file), tunes, file), preset)
    check_stars([tree for tree, _ in trees.values()], overrides)
    if data:
        # Paths for sources that only other cells need are accepted.
        all_trees = _cell_trees(table, file, table.pairs(table.rows, table.columns), PAPER)
        selected_trees, accepted_trees = (
            [apply_overrides(tree, overrides) for tree, _ in group.values()] for group in (trees, all_trees)
        )
        check_data(data, selected_trees, accepted_trees, [slug(column) for column in table.columns])
    cells = []
    for (row, column), (tree, neighbours) in trees.items():
        tune = tunes[(row, column)]
        paths = data_of(tree, slug(column), data)
        searches = [search for (_, name), search in tunes.items() if name == column and search is not None]
        column_tune = searches[0] if searches and tree.get("baseline") is not None else None
        jobs = tuple(
            _build_job(tree, table, seed, paths, overrides, file, _cell_id((row, column)))
            for seed in _cell_seeds(tune, column_tune, seeds, preset.seeds or table.seeds)
        )
        tuning = None if tune is None else tuning_of(tune, row, table, file, jobs[0])
        # An override replaces the post-hoc values that the table sets.
        replaced = [name for name in neighbours for key in overrides if covers(key, f"evaluation.knn.{name}")]
        cell_neighbours = {name: value for name, value in neighbours.items() if name not in replaced}
        cells.append(Cell(row, column, jobs, _figures(table, row, column, file), cell_neighbours, tuning))
        _check_neighbours(cells[-1], file)
    check_controls({(cell.row, cell.column): cell.tuning for cell in cells if cell.tuning is not None}, file)
    return cells


def _cell_seeds(tune: Tune | None, column_tune: Tune | None, seeds: int | None, count: int) -> Sequence[int]:
    """Returns the seeds of a cell from 0 on: as many as `seeds`, else as its search has, else `count`.

    For a fitted baseline, `column_tune` is the search of another cell in its column. The baseline gets the
    fresh seeds of that search, so that runs can be paired.
    """
    if tune is None and column_tune is not None:
        return fresh_seeds_of(column_tune.searches, seeds or column_tune.seeds or count)
    return range(seeds or (tune and tune.seeds) or count)


def _cell_id(pair: tuple[str, str]) -> str:
    return "/".join(map(slug, pair))


def _cell_trees(
    table: Table, file: Path, pairs: Sequence[tuple[str, str]], scale: Scale
) -> dict[tuple[str, str], tuple[dict[str, Any], dict[str, float]]]:
    return {
        (row, column): cell_tree(table, file, table.rows[row], table.columns[column], scale)
        for row, column in pairs
    }


def _find_scale(table: Table, file: Path, name: str | None) -> Scale:
    if name is None:
        return PAPER
    if name not in table.scales:
        allowed = list(table.scales) or "none"
        raise UserError("no such scale", file=file, key="--scale", found=name, allowed=allowed)
    return table.scales[name]


def _printed_names(lines: Mapping[str, TableLine]) -> tuple[str, ...]:
    return tuple(name for name, line in lines.items() if not line.alternative)


def _select_pairs(pairs: list[tuple[str, str]], patterns: Sequence[str], file: Path) -> list[tuple[str, str]]:
    matches = {pattern: [pair for pair in pairs if _matches(pair, pattern)] for pattern in patterns}
    for pattern, group in matches.items():
        if not group:
            allowed = list(map(_cell_id, pairs))
            raise UserError("no such cell", file=file, key="--only", found=pattern, allowed=allowed)
    return [pair for pair in pairs if not patterns or any(pair in group for group in matches.values())]


def _matches(pair: tuple[str, str], pattern: str) -> bool:
    names = (_cell_id(pair), *map(slug, pair))
    return pattern in pair or any(fnmatch.fnmatchcase(name, pattern.lower()) for name in names)


def _check_overrides(table: Table, overrides: Mapping[str, Any]) -> None:
    """Raises UserError if an override sets `experiment` or a key that gets the seed."""
    for table_key in ("experiment", *table.seed_keys):
        for key in overrides:
            if covers(key, table_key) or covers(table_key, key):
                raise UserError(
                    f"the table itself sets {table_key}", key=key, allowed="any other key, and --seeds"
                )


def _build_job(
    tree: dict[str, Any],
    table: Table,
    seed: int,
    data: Mapping[str, str],
    overrides: Mapping[str, Any],
    file: Path,
    cell: str,
) -> JobConfig:
    settings = {"experiment": table.experiment, **dict.fromkeys(table.seed_keys, seed)}
    try:
        return validate(JobConfig, with_data(apply_overrides(tree, {**settings, **overrides}), data), None)
    except UserError as error:
        # An error in an override is not an error in the file.
        raise _cell_error(error, cell, None if error.key in overrides else file) from None


def _check_neighbours(cell: Cell, file: Path) -> None:
    """Raises UserError if `neighbours` cannot be applied after training."""
    job = cell.jobs[0]
    if not cell.neighbours:
        return
    if cell.tuning is not None:
        problem, keys = f"a search chooses the neighbours itself (cell {cell.id})", list(cell.neighbours)
        raise UserError(problem, file=file, key="set", found=keys, allowed="these keys in the space")
    if job.evaluation.knn is None:
        raise UserError(f"the job has no neighbours to set (cell {cell.id})", file=file, key="evaluation.knn")
    neighbours_alone = job.evaluation.metric.startswith("knn/") or job.objective.classifier_weight == 0
    if job.train.patience is not None and neighbours_alone:
        problem = f"the neighbours decide when this training ends (cell {cell.id})"
        found, allowed = job.train.patience, "evaluation.knn set as a whole, or null"
        raise UserError(problem, file=file, key="train.patience", found=found, allowed=allowed)
    try:
        cell.seed_job(0)
    except UserError as error:
        raise _cell_error(error, cell.id, file) from None


def _cell_error(error: UserError, cell: str, file: Path | None) -> UserError:
    return error.with_fields(problem=f"{error.problem} (cell {cell})", file=file)


def _figures(table: Table, row: str, column: str, file: Path) -> tuple[Figure, ...]:
    lines = table.columns[column], table.rows[row]
    all_metrics = lines[0].metrics or lines[1].metrics or table.metrics
    metrics = {
        name: metric
        for name, metric in all_metrics.items()
        if not any(name in line.without for line in lines)
    }
    if not metrics:
        key = f"rows.{row}.without, columns.{column}.without"
        raise UserError("no figure is left", file=file, key=key, allowed=list(all_metrics))
    numbers = table.paper.get(row, {}).get(column) or (None,) * len(metrics)
    if len(numbers) != len(metrics):
        key = f"paper.{row}.{column}"
        raise UserError(
            "needs a figure for each metric", file=file, key=key, found=len(numbers), allowed=len(metrics)
        )
    return tuple(
        Figure(name, metric, figure) for (name, metric), figure in zip(metrics.items(), numbers, strict=True)
    )
