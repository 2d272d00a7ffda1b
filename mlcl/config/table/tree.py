"""Makes the trees of the jobs of cells: a job file with the changes of table, row, column and scale."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from mlcl.config.loader import apply_overrides, drop_key, read_job, value_at
from mlcl.config.space.keys import POSTHOC
from mlcl.config.table.schema import Change, Scale, Table, TableLine
from mlcl.errors import UserError

PAPER = Scale(about="the paper's setting")
DATA_SECTIONS = ("data", "evaluation.transfer_to")
"""The sections of a job that name a data set."""


def cell_tree(
    table: Table, file: Path, row: TableLine, column: TableLine, scale: Scale = PAPER
) -> tuple[dict[str, Any], dict[str, float]]:
    """Returns the job of a cell as a tree, without a seed, and the values of its post-hoc keys by name.

    The row is applied first, then the column, then the scale. Raises UserError if the table names no job, the
    job cannot be read, or a change does not fit it.
    """
    name = column.job or row.job or table.job
    if name is None:
        raise UserError("neither the table nor its rows or columns name a job", file=file, key="job")
    changes: tuple[Change, ...] = (row, column, scale)
    names = {key: value for change in changes for key, value in change.vars.items()}
    job = read_job((file.parent / _fill_name(name, names, file)).resolve())
    tree = _set_values(job.tree, table.set, file)
    neighbours: dict[str, float] = {}
    for change in changes:
        for key in change.drop:
            drop_key(tree, key, file)
        posthoc = {key: value for key, value in change.set.items() if key in POSTHOC}
        neighbours |= {key.rpartition(".")[2]: value for key, value in posthoc.items()}
        tree = _set_values(
            tree, {key: value for key, value in change.set.items() if key not in posthoc}, file
        )
    return job.with_plugins(tree), neighbours


def _fill_name(name: str, names: Mapping[str, str], file: Path) -> str:
    """Returns the name of a job file, with the names in braces replaced by their values."""

    def value(match: re.Match[str]) -> str:
        if match[1] not in names:
            problem, allowed = "a name in braces is in no vars", sorted(names) or "none"
            raise UserError(problem, file=file, key="job", found=match[1], allowed=allowed)
        return names[match[1]]

    return re.sub(r"{(.*?)}", value, name)


def _set_values(tree: dict[str, Any], values: Mapping[str, Any], file: Path) -> dict[str, Any]:
    try:
        return apply_overrides(tree, values)
    except UserError as error:
        raise UserError(error.problem, file=file, key=f"set.{error.key}", found=error.found) from None


def with_data(tree: dict[str, Any], data: Mapping[str, str]) -> dict[str, Any]:
    """Returns the tree with the paths that `data` gives for sources: their files, or prepared data sets."""
    for section in DATA_SECTIONS:
        source = _data_source(tree, section)
        if source is not None and source in data:
            # A path with `~` and the full path give the same job hash.
            path = data[source] if "://" in data[source] else str(Path(data[source]).expanduser())
            if _is_prepared(path):
                node = value_at(tree, section)
                settings = {key: node[key] for key in node if key not in ("source", "options", "split_seed")}
                tree = apply_overrides(tree, {section: {**settings, "path": path}})
            else:
                tree = apply_overrides(tree, {f"{section}.options.path": path})
    return tree


def data_of(tree: dict[str, Any], column: str, data: Mapping[str, str]) -> Mapping[str, str]:
    """Returns the paths of `data` by source for a cell; a path of its column replaces that of its source.

    Raises UserError if the column has a path and the cell's job names no source.
    """
    if column not in data:
        return data
    source = _data_source(tree, "data")
    if source is None:
        found = f"{column}={data[column]}"
        problem = "a job of this column names a prepared data set and no source"
        raise UserError(problem, key="--data", found=found, allowed="data.path=FOLDER after the table's name")
    return {**data, source: data[column]}


def check_data(
    data: Mapping[str, str],
    selected_trees: Sequence[dict[str, Any]],
    all_trees: Sequence[dict[str, Any]],
    columns: Sequence[str],
) -> None:
    """Checks the paths in `data`, keyed by source or column, that the command line gives.

    `selected_trees` are the trees of the selected cells, `all_trees` those of all cells: their sources are
    accepted. Raises UserError for a name that is neither a column nor a source of a cell, and for a prepared
    data set of a source that the cells prepare with different options.
    """
    sources = {
        _data_source(tree, section) for tree in (*selected_trees, *all_trees) for section in DATA_SECTIONS
    }
    known_sources = sorted(source for source in sources if source is not None)
    for source, path in data.items():
        if source in columns:
            continue
        if source not in known_sources:
            allowed = [*known_sources, *columns]
            raise UserError("no cell takes this source", key="--data", found=source, allowed=allowed)
        sections = [(tree, section) for tree in selected_trees for section in DATA_SECTIONS]
        versions = {_data_version(*location) for location in sections if _data_source(*location) == source}
        if _is_prepared(path) and len(versions) > 1:
            raise UserError(
                "the cells take several versions of this source, and a prepared folder is one",
                key="--data",
                found=f"{source}={path}",
                allowed="the source's files, or --only with cells of one version",
            )


def _is_prepared(path: str) -> bool:
    """Whether a path leads to a prepared data set, not to a source's files. True for every URI."""
    return "://" in path or (Path(path).expanduser() / "dataset.json").is_file()


def _data_version(tree: dict[str, Any], section: str) -> str:
    """Returns the options and the seed with which a source prepares the data set of a section, as text."""
    node = value_at(tree, section) or {}
    options = {key: value for key, value in (node.get("options") or {}).items() if key != "path"}
    return json.dumps([options, node.get("split_seed")], sort_keys=True, default=str)


def _data_source(tree: dict[str, Any], section: str) -> str | None:
    source = value_at(tree, f"{section}.source")
    return source if isinstance(source, str) else None
