"""From a table to its cells: a checked job for every seed of every row and column."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mlcl.config.job import JobConfig, KnnConfig
from mlcl.config.load import apply_overrides, read_yaml, validate
from mlcl.config.space.keys import POSTHOC
from mlcl.config.table.schema import Change, Line, Scale, Table
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
    other than the job's: they need no training of their own.
    """

    row: str
    column: str
    jobs: tuple[JobConfig, ...]
    figures: tuple[Figure, ...]
    neighbours: Mapping[str, float] = field(default_factory=dict)

    @property
    def id(self) -> str:
        """`row/column`, in lower case and without blanks, for the command line."""
        return f"{slug(self.row)}/{slug(self.column)}"


def slug(text: str) -> str:
    """A name for the command line and for metrics: lower case, other signs as one hyphen."""
    return re.sub(r"[^a-z0-9.+]+", "-", text.lower()).strip("-")


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
    folder; `overrides` change every job. Raises UserError for whatever is unknown, and for a job that
    is wrong, naming the cell.
    """
    preset = _scale(table, file, scale)
    rows = preset.rows or tuple(table.rows)
    columns = preset.columns or tuple(table.columns)
    pairs = [(row, column) for row in rows for column in columns]
    wanted = _only(pairs, only, file)
    number = seeds or preset.seeds or table.seeds
    cells = []
    for row, column in wanted:
        lines = (table.rows[row], table.columns[column])
        tree, neighbours = _job_tree(table, file, lines, preset)
        jobs = tuple(
            _job(tree, table, seed, data or {}, overrides or {}, file, f"{row}, {column}")
            for seed in range(number)
        )
        figures = _figures(table, row, column, lines, file)
        _check_neighbours(jobs[0], neighbours, file, f"{row}, {column}")
        cells.append(Cell(row, column, jobs, figures, neighbours))
    return cells


def _scale(table: Table, file: Path, name: str | None) -> Scale:
    if name is None:
        return Scale(about="the paper's setting")
    if name not in table.scales:
        raise UserError(
            "no such scale", file=file, key="--scale", found=name, allowed=list(table.scales) or "none"
        )
    return table.scales[name]


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
    return any(fnmatch.fnmatchcase(name, pattern.lower()) for name in names)


def _job_tree(
    table: Table, file: Path, lines: tuple[Line, Line], scale: Scale
) -> tuple[dict[str, Any], dict[str, float]]:
    """The job of a cell before its seed, and its settings of the neighbours.

    Row, column, scale: the later one has the last word.
    """
    name = lines[1].job or lines[0].job or table.job
    if name is None:
        raise UserError("neither the table nor its rows or columns name a job", file=file, key="job")
    changes: tuple[Change, ...] = (*lines, scale)
    names = {key: value for change in changes for key, value in change.vars.items()}
    try:
        path = (file.parent / name.format_map(names)).resolve()
    except (KeyError, ValueError, IndexError) as error:
        raise UserError("a name in braces is in no vars", file=file, key="job", found=error) from None
    tree = apply_overrides(read_yaml(path), table.set)
    neighbours: dict[str, float] = {}
    for change in changes:
        for key in change.drop:
            _drop(tree, key, file)
        free = {key: value for key, value in change.set.items() if key in POSTHOC}
        neighbours |= {key.rpartition(".")[2]: value for key, value in free.items()}
        tree = apply_overrides(tree, {key: v for key, v in change.set.items() if key not in free})
    return tree, neighbours


def _check_neighbours(job: JobConfig, neighbours: Mapping[str, float], file: Path, cell: str) -> None:
    if not neighbours:
        return
    if job.evaluation.knn is None:
        raise UserError(
            f"the job has no neighbours to set (cell {cell})", file=file, key="evaluation.knn", found=None
        )
    given = job.evaluation.knn.model_dump(by_alias=True) | dict(neighbours)
    validate(KnnConfig, given, file)


def _drop(tree: dict[str, Any], dotted: str, file: Path) -> None:
    *parents, last = dotted.split(".")
    node: Any = tree
    for part in parents:
        node = node.get(part) if isinstance(node, dict) else None
    if not isinstance(node, dict) or last not in node:
        raise UserError("the job has no such key to leave out", file=file, key="drop", found=dotted)
    del node[last]


def _job(
    tree: Mapping[str, Any],
    table: Table,
    seed: int,
    data: Mapping[str, str],
    overrides: Mapping[str, Any],
    file: Path,
    cell: str,
) -> JobConfig:
    fixed = {"experiment": table.experiment, **dict.fromkeys(table.seed_keys, seed)}
    seeded = apply_overrides(tree, {**fixed, **overrides})
    for section in ("data", "evaluation.transfer_to"):
        seeded = _placed(seeded, section, data)
    try:
        return validate(JobConfig, seeded, None)
    except UserError as error:
        raise UserError(
            f"{error.problem} (cell {cell})",
            file=file,
            key=error.key,
            found=error.found,
            allowed=error.allowed,
        ) from None


def _placed(tree: dict[str, Any], section: str, data: Mapping[str, str]) -> dict[str, Any]:
    """The tree with a source's files, or the prepared folder in its place, from the command line."""
    node: Any = tree
    for part in section.split("."):
        node = node.get(part) if isinstance(node, dict) else None
    if not isinstance(node, dict) or node.get("source") not in data:
        return tree
    place = data[node["source"]]
    if not (Path(place) / "dataset.json").is_file():
        return apply_overrides(tree, {f"{section}.options.path": place})
    kept = {key: value for key, value in node.items() if key not in ("source", "options", "split_seed")}
    return apply_overrides(tree, {section: {**kept, "path": place}})


def _figures(table: Table, row: str, column: str, lines: tuple[Line, Line], file: Path) -> tuple[Figure, ...]:
    metrics = lines[1].metrics or lines[0].metrics or table.metrics
    given = table.paper.get(row, {}).get(column)
    printed = given if isinstance(given, tuple) else (given,) * (len(metrics) if given is None else 1)
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
