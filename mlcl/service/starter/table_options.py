"""The options of a table's source, from what its columns are for."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from itertools import islice, pairwise
from pathlib import Path
from typing import Any

from mlcl.data.column_roles import ROWS_READ, Column, Roles, column_of, roles_of
from mlcl.data.format import RESERVED
from mlcl.data.sources.common.label_notation import divides, text_of
from mlcl.data.table_file import ENCODING, TableFile, open_table
from mlcl.errors import UserError

SOURCES = {".csv": "csv", ".tsv": "csv", ".jsonl": "jsonl", ".ndjson": "jsonl", ".parquet": "parquet"}
Ask = Callable[[str, Sequence[str], str], str]
"""Asks a question with what may be answered and a default, and returns the answer."""


def table_options(
    path: Path,
    text: str | None,
    labels: Sequence[str],
    ask: Ask | None,
    encoding: str = ENCODING,
    group: str | None = None,
) -> tuple[str, dict[str, Any], list[str]]:
    """The source of a file, its options, and lines on what was found.

    `text`, `labels` and `group` name columns; what they leave open and the table does not tell is asked, or
    without `ask` a UserError that names the option.
    """
    table = open_table(path, encoding)
    if next(table.rows(()), None) is None:
        raise UserError("no rows", file=path)
    for key, names in (("--text", [text]), ("--labels", labels), ("--group", [group])):
        for name in names:
            if name is not None:
                table.require(name, key)
    roles = roles_of(table)
    content = text or _text(table, roles, ask)
    columns = _named(table, labels) if labels else _labels(table, roles, {content, group}, ask)
    spaces, found = _spaces(table, columns)
    options: dict[str, Any] = {"path": str(path), "text": content, "labels": spaces}
    if encoding != ENCODING:
        options["encoding"] = encoding
    lines = [f"{path.name}: the columns {', '.join(table.columns)}", f"text: the column {content}", *found]
    for key, column in (("id", roles.id), ("split", roles.split), ("group", group)):
        if column is not None and column != content:
            options[key] = column
            lines.append(f"{key}: the column {column}")
    return SOURCES[path.suffix.lower()], options, lines


def _text(table: TableFile, roles: Roles, ask: Ask | None) -> str:
    if roles.text is None:
        problem, allowed = "no column looks like texts: name it", "--text COLUMN"
        raise UserError(problem, file=table.path, key="--text", found=list(table.columns), allowed=allowed)
    names = [column.name for column in roles.texts]
    if len(names) == 1 or roles.text.named or roles.text.words > 2 * roles.texts[1].words:
        return roles.text.name
    return _asked(table, "--text", "Which column has the texts?", names, ask)


def _labels(table: TableFile, roles: Roles, taken: set[str | None], ask: Ask | None) -> list[Column]:
    candidates = [column for column in roles.labels if column.name not in taken]
    if not candidates:
        problem, allowed = "no column looks like labels: name it", "--labels COLUMN, several times for levels"
        raise UserError(problem, file=table.path, key="--labels", found=list(table.columns), allowed=allowed)
    levels = _levels(table, [column for column in candidates if column.kind == "single"])
    for kinds in (("flag",), ("single",)):
        if all(column.kind in kinds for column in candidates) and (levels or kinds == ("flag",)):
            return candidates
    named = [column for column in candidates if column.named]
    if len(named) == 1 or len(candidates) == 1:
        return (named or candidates)[:1]
    names = [column.name for column in candidates]
    name = _asked(table, "--labels", "Which column has the labels to predict?", names, ask)
    return [column for column in candidates if column.name == name]


def _asked(table: TableFile, key: str, question: str, names: Sequence[str], ask: Ask | None) -> str:
    if ask is None:
        problem = f"several columns may be it: name one with {key}"
        raise UserError(problem, file=table.path, key=key, found=names)
    answer = ask(question, names, names[0])
    table.require(answer, key, names)
    return answer


def _named(table: TableFile, names: Sequence[str]) -> list[Column]:
    values = [[row.values.get(name) for name in names] for row in islice(table.rows(names), ROWS_READ)]
    return [column_of(name, [row[i] for row in values]) for i, name in enumerate(names)]


def _spaces(table: TableFile, columns: Sequence[Column]) -> tuple[dict[str, Any], list[str]]:
    """The label spaces of columns, and lines on them; the first is the one to predict."""
    flags = [column for column in columns if column.kind == "flag"]
    if len(flags) > 1 and len(flags) == len(columns):
        names = [column.name for column in flags]
        return {"labels": {"kind": "multi_label", "columns": names}}, [
            f"labels: {len(names)} columns of 0 and 1, {', '.join(names)}"
        ]
    spaces, lines = dict[str, Any](), []
    for column in columns:
        several = column.kind == "multi_label" or (
            column.kind in ("text", "other") and _blanks(table, column.name)
        )
        space: dict[str, Any] = {"kind": "multi_label" if several else "single", "column": column.name}
        divided = column.separator or (" " if several and column.kind != "multi_label" else None)
        if divided:
            space["separator"] = divided
        spaces[space_name(column.name)] = space
        how = f"several a row{f', divided at {divided!r}' if divided else ''}" if several else "one a row"
        lines.append(f"labels: the column {column.name}, {how}, such as {column.example!r}")
    levels = _levels(table, [column for column in columns if column.kind in ("single", "flag")])
    if len(columns) > 1 and len(levels) < len(columns):
        problem = "not levels of one another: name the one to predict"
        raise UserError(problem, file=table.path, key="--labels", found=[column.name for column in columns])
    if levels:
        spaces["path"] = {"kind": "hierarchy", "levels": [space_name(name) for name in levels]}
        lines.append(f"levels: {' > '.join(levels)}, since each class of one has one class above it")
    return spaces, lines


def _blanks(table: TableFile, name: str) -> bool:
    values = [row.values.get(name) for row in islice(table.rows({name}), ROWS_READ)]
    return divides({value.strip() for value in values if isinstance(value, str)}, " ")


def _levels(table: TableFile, columns: Sequence[Column]) -> list[str]:
    """The columns coarse to fine, where each value of one comes with one value of the coarser one."""
    ordered = [column.name for column in sorted(columns, key=lambda column: column.distinct)]
    if len(ordered) < 2:
        return []
    parents: list[dict[str, str]] = [{} for _ in ordered[1:]]
    for row in islice(table.rows(ordered), ROWS_READ):
        for known, (coarse, fine) in zip(parents, pairwise(ordered), strict=True):
            above, below = text_of(row.values.get(coarse)), text_of(row.values.get(fine))
            if above and below and known.setdefault(below, above) != above:
                return []
    return ordered


def space_name(column: str) -> str:
    """The name of a label space for a column."""
    name = re.sub(r"[^A-Za-z0-9_-]+", "_", column).strip("_-") or "labels"
    return f"{name}_label" if name in (*RESERVED, "path") else name
