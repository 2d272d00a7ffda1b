"""The job tree of a cell, before its seed: a job file as table, row, column and scale change it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from mlcl.config.loader import apply_overrides, read_yaml
from mlcl.config.plugin_files import read_plugins
from mlcl.config.space.keys import POSTHOC
from mlcl.config.table.schema import Change, Line, Scale, Table
from mlcl.errors import UserError

PAPER = Scale(about="the paper's setting")


def cell_tree(
    table: Table, file: Path, row: Line, column: Line, scale: Scale = PAPER
) -> tuple[dict[str, Any], dict[str, float]]:
    """The job tree of a cell, and its settings of the neighbours (k, lambda, temperature).

    Row, column, scale: the later one has the last word. Raises UserError that names the table's file.
    """
    name = column.job or row.job or table.job
    if name is None:
        raise UserError("neither the table nor its rows or columns name a job", file=file, key="job")
    changes: tuple[Change, ...] = (row, column, scale)
    names = {key: value for change in changes for key, value in change.vars.items()}
    path = (file.parent / _filled(name, names, file)).resolve()
    tree = _set(read_yaml(path), table.set, file)
    neighbours: dict[str, float] = {}
    for change in changes:
        for key in change.drop:
            _drop(tree, key, file)
        free = {key: value for key, value in change.set.items() if key in POSTHOC}
        neighbours |= {key.rpartition(".")[2]: value for key, value in free.items()}
        tree = _set(tree, {key: value for key, value in change.set.items() if key not in free}, file)
    return read_plugins(tree, path), neighbours


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


def _drop(tree: dict[str, Any], dotted: str, file: Path) -> None:
    above, _, last = dotted.rpartition(".")
    node = section_of(tree, above) if above else tree
    if node is None or last not in node:
        raise UserError("the job has no such key to leave out", file=file, key="drop", found=dotted)
    del node[last]
