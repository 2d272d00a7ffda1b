"""The job tree of a cell, before its seed: a job file as table, row, column and scale change it.

The data of its sources may lie at places that the command line names.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from mlcl.config.loader import apply_overrides, drop_key, read_job
from mlcl.config.space.keys import POSTHOC
from mlcl.config.table.schema import Change, Line, Scale, Table
from mlcl.errors import UserError

PAPER = Scale(about="the paper's setting")
PLACES = ("data", "evaluation.transfer_to")
"""The sections of a job that name a data set."""


def cell_tree(
    table: Table, file: Path, row: Line, column: Line, scale: Scale = PAPER
) -> tuple[dict[str, Any], dict[str, float]]:
    """The job tree of a cell, and its settings of the neighbours (k, lambda, temperature).

    The scale overrides the column, and the column the row. Raises UserError that names the table's file.
    """
    name = column.job or row.job or table.job
    if name is None:
        raise UserError("neither the table nor its rows or columns name a job", file=file, key="job")
    changes: tuple[Change, ...] = (row, column, scale)
    names = {key: value for change in changes for key, value in change.vars.items()}
    path = (file.parent / _filled(name, names, file)).resolve()
    written = read_job(path)
    tree = _set(written.tree, table.set, file)
    neighbours: dict[str, float] = {}
    for change in changes:
        for key in change.drop:
            drop_key(tree, key, file)
        free = {key: value for key, value in change.set.items() if key in POSTHOC}
        neighbours |= {key.rpartition(".")[2]: value for key, value in free.items()}
        tree = _set(tree, {key: value for key, value in change.set.items() if key not in free}, file)
    return written.with_plugins(tree), neighbours


def section_of(tree: dict[str, Any], dotted: str) -> dict[str, Any] | None:
    """The section of a tree under a dotted key, if it has one."""
    node: Any = tree
    for part in dotted.split("."):
        node = node.get(part) if isinstance(node, dict) else None
    return node if isinstance(node, dict) else None


def _filled(name: str, names: Mapping[str, str], file: Path) -> str:
    """The name of a job file with its names in braces replaced."""

    def value(match: re.Match[str]) -> str:
        if match[1] not in names:
            raise UserError(
                "a name in braces is in no vars", file=file, key="job", found=match[1],
                allowed=sorted(names) or "none",
            )  # fmt: skip
        return names[match[1]]

    return re.sub(r"{(.*?)}", value, name)


def _set(tree: dict[str, Any], values: Mapping[str, Any], file: Path) -> dict[str, Any]:
    try:
        return apply_overrides(tree, values)
    except UserError as error:
        raise UserError(error.problem, file=file, key=f"set.{error.key}", found=error.found) from None


def placed(tree: dict[str, Any], section: str, data: Mapping[str, str]) -> dict[str, Any]:
    """The tree with a source's files, or a prepared folder in its place, from the command line."""
    node, source = section_of(tree, section), _source_of(tree, section)
    if node is None or source is None or source not in data:
        return tree
    # `~` and the full path are one place: the job gets the same hash.
    place = data[source] if "://" in data[source] else str(Path(data[source]).expanduser())
    if not _is_prepared(place):
        return apply_overrides(tree, {f"{section}.options.path": place})
    kept = {key: value for key, value in node.items() if key not in ("source", "options", "split_seed")}
    return apply_overrides(tree, {section: {**kept, "path": place}})


def places_of(tree: dict[str, Any], column: str, data: Mapping[str, str]) -> Mapping[str, str]:
    """The places by source for a cell of this column; one given for the column replaces its source's."""
    source = _source_of(tree, "data")
    return data if source is None or column not in data else {**data, source: data[column]}


def check_places(
    data: Mapping[str, str],
    asked: Sequence[dict[str, Any]],
    others: Sequence[dict[str, Any]],
    columns: Sequence[str],
) -> None:
    """Raises UserError for a name that is none of the `columns` and no source of a cell, be it `asked` for or
    one of the `others`, and for a prepared folder in the place of several versions of a source: files are
    prepared as each cell needs them.
    """
    used = {_source_of(tree, section) for tree in (*asked, *others) for section in PLACES}
    known = sorted(source for source in used if source is not None)
    for source, place in data.items():
        if source in columns:
            continue
        if source not in known:
            raise UserError(
                "no cell takes this source", key="--data", found=source, allowed=[*known, *columns]
            )
        sections = [(tree, section) for tree in asked for section in PLACES]
        versions = {_version_of(*its) for its in sections if _source_of(*its) == source}
        if _is_prepared(place) and len(versions) > 1:
            raise UserError(
                "the cells take several versions of this source, and a prepared folder is one",
                key="--data",
                found=f"{source}={place}",
                allowed="the source's files, or --only with cells of one version",
            )


def _is_prepared(place: str) -> bool:
    """Whether a prepared data set lies there, not a source's files. A URI is taken to be one."""
    return "://" in place or (Path(place).expanduser() / "dataset.json").is_file()


def _version_of(tree: dict[str, Any], section: str) -> str:
    """The options that decide which data set a source prepares for a cell, as text."""
    node = section_of(tree, section) or {}
    options = {key: value for key, value in (node.get("options") or {}).items() if key != "path"}
    return json.dumps([options, node.get("split_seed")], sort_keys=True, default=str)


def _source_of(tree: dict[str, Any], section: str) -> str | None:
    """The source that a section of the tree names, if any."""
    source = (section_of(tree, section) or {}).get("source")
    return source if isinstance(source, str) else None
