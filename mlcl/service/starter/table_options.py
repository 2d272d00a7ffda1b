"""The options of a table's source: what the user says of the columns, else what they are recognised as."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from mlcl.data.format import RESERVED
from mlcl.data.tables.files import Dialect, Table, suffix_of
from mlcl.data.tables.formats import open_table
from mlcl.data.tables.options import Treatment
from mlcl.data.tables.roles import Kind, Role, Roles, roles_of
from mlcl.errors import UserError

SOURCES = {
    ".csv": "csv", ".tsv": "csv", ".jsonl": "jsonl", ".ndjson": "jsonl", ".json": "jsonl",
    ".parquet": "parquet", ".txt": "txt",
}  # fmt: skip
FEWEST_FLAGS = 3
"""Columns of 0 and 1 that are the labels even where other columns may be labels, too."""
Ask = Callable[[str, Sequence[str], str], str]
"""Asks a question with what may be answered and a default, and returns the answer."""


@dataclass(frozen=True)
class Said:
    """Options that a user gives for a table; the rest is recognised. `labels` may be patterns as `is_*`."""

    text: tuple[str, ...] = ()
    image: str | None = None
    labels: tuple[str, ...] = ()
    kind: Literal["single", "multi_label", "path"] | None = None
    separator: str | None = None
    names: tuple[str, ...] = ()
    threshold: float | None = None
    missing: Treatment | None = None
    uncertain: Treatment | None = None
    id: str | None = None
    split: str | None = None
    group: str | None = None
    dialect: Dialect = field(default_factory=Dialect)
    twins: Literal["apart", "together"] = "apart"
    allow_untrained: bool = False


def table_options(
    paths: Sequence[Path], said: Said, ask: Ask | None = None
) -> tuple[str, dict[str, Any], list[str]]:
    """The source of files with the same columns, its options, and lines on what was found.

    What the user does not say and the tables do not tell is asked, or without `ask` a UserError that names
    the option.
    """
    tables = [open_table(path, said.dialect) for path in paths]
    table = tables[0]
    for other in tables[1:]:
        if missing := set(table.columns) - set(other.columns):
            problem = f"lacks columns that {table.path.name} has"
            raise UserError(problem, file=other.path, found=sorted(missing), allowed=list(table.columns))
    if next(table.chunks(table.columns[:1]), None) is None:
        raise UserError("no rows", file=paths[0])
    labels = [c for pattern in said.labels for c in fnmatch.filter(table.columns, pattern) or [pattern]]
    named = [("image", said.image), ("id", said.id), ("split", said.split), ("group", said.group)]
    named += [("text", column) for column in said.text] + [("labels", column) for column in labels]
    for key, column in named:
        if column is not None:
            table.require(column, key)
    roles = roles_of(tables, labels)
    modality, content, lines = _content(table, roles, said, ask)
    taken = {*content, said.group, said.id, said.split}
    flags: tuple[Kind, ...] = ("flag",) if said.threshold is None else ("flag", "share")
    chosen = _given(roles, labels) if labels else _labels(table, roles, taken, flags, ask)
    spaces, found = _spaces(table, roles, chosen, said)
    options: dict[str, Any] = {
        "path": str(paths[0]) if len(paths) == 1 else [str(path) for path in paths],
        modality: content[0] if len(content) == 1 else list(content),
        "labels": spaces,
    }
    lines = [f"{table.path.name}: the columns {', '.join(table.columns)}", *lines, *found]
    columns = {"id": said.id or roles.id, "split": said.split or roles.split, "group": said.group}
    for key, column in columns.items():
        if column is not None and column not in content:
            options[key] = column
            lines.append(f"{key}: the column {column}")
    unused = _unused(roles, {*content, *(role.name for role in chosen), *columns.values()})
    default = asdict(Dialect())
    options |= {key: value for key, value in asdict(said.dialect).items() if value != default[key]}
    if said.allow_untrained:
        options["allow_untrained"] = True
    if said.twins == "together":
        options["twins"] = said.twins
    return SOURCES.get(suffix_of(table.path), "txt"), options, [*lines, *unused]


def _content(
    table: Table, roles: Roles, said: Said, ask: Ask | None
) -> tuple[str, tuple[str, ...], list[str]]:
    """The modality, its columns, and lines on them."""
    if said.text:
        joined = ", which are joined" if len(said.text) > 1 else ""
        return "text", said.text, [f"text: the {_columns(said.text)}{joined}"]
    texts, images, vectors = (roles.of(kind) for kind in ("text", "image", "vectors"))
    if said.image or (images and not texts):
        name = said.image or _one(table, "image", images, ask)
        return "image", (name,), [f"image: the column {name}"]
    if vectors and not texts:
        name = _one(table, "vectors", vectors, ask)
        return "vectors", (name,), [f"vectors: the column {name}"]
    if not texts:
        raise UserError(
            "no column looks like texts: name it", file=table.path, key="text", found=list(table.columns),
            allowed="text COLUMN, several to join them; or image COLUMN",
        )  # fmt: skip
    if len(texts) == 1 or texts[0].named or texts[0].words > 2 * texts[1].words:
        name = texts[0].name
    else:
        name = _asked(table, "text", "Which column has the texts?", [role.name for role in texts], ask)
    return "text", (name,), [f"text: the column {name}"]


def _one(table: Table, key: str, roles: Sequence[Role], ask: Ask | None) -> str:
    if len(roles) == 1:
        return roles[0].name
    return _asked(table, key, f"Which column is the {key}?", [role.name for role in roles], ask)


def _given(roles: Roles, labels: Sequence[str]) -> list[Role]:
    by_name = {role.name: role for role in roles.columns}
    return [by_name[name] for name in labels]


def _labels(
    table: Table, roles: Roles, taken: set[str | None], kinds: tuple[Kind, ...], ask: Ask | None
) -> list[Role]:
    """The columns of the labels: columns of 0 and 1 (of `kinds`), levels, or one column."""
    repeats = roles.repeats or {}
    candidates = [
        role
        for role in roles.of("single", "multi_label", "path", *kinds)
        if role.name not in taken and role.name not in repeats
    ]
    shares = [role.name for role in roles.of("share") if role.name not in taken and "share" not in kinds]
    unread = [role.problem for role in roles.of("other") if role.named and role.problem is not None]
    if unread and not candidates:
        raise unread[0]
    if not candidates or (len(shares) >= FEWEST_FLAGS and not any(role.named for role in candidates)):
        problem = "columns of shares need a threshold" if shares else "no column looks like labels: name it"
        allowed = "labels COLUMN with threshold 0.5" if shares else "labels COLUMN, several for levels"
        raise UserError(
            problem, file=table.path, key="labels", found=shares or list(table.columns), allowed=allowed
        )
    flags = [role for role in candidates if role.kind in kinds]
    others = [role for role in candidates if role.kind not in kinds]
    if all(role.kind == "single" for role in candidates) and roles.levels(candidates):
        return candidates
    named = [role for role in others if role.named]
    if flags and (not others or (len(flags) >= FEWEST_FLAGS and not named)):
        return flags
    if len(named) == 1 or len(candidates) == 1:
        return (named or candidates)[:1]
    if all(role.kind == "single" for role in named) and roles.levels(named):
        return named
    names = [role.name for role in candidates]
    name = _asked(table, "labels", "Which column has the labels to predict?", names, ask)
    return [role for role in candidates if role.name == name]


def _asked(table: Table, key: str, question: str, names: Sequence[str], ask: Ask | None) -> str:
    if ask is None:
        problem = f"several columns may be it: name one with {key}"
        raise UserError(problem, file=table.path, key=key, found=names)
    answer = ask(question, names, names[0])
    table.require(answer, key, names)
    return answer


def _spaces(
    table: Table, roles: Roles, columns: Sequence[Role], said: Said
) -> tuple[dict[str, Any], list[str]]:
    """The label spaces of columns, and lines on them; the first is the one to predict.

    Raises UserError for columns that are no levels, and for what a user says that none of them takes.
    """
    if said.threshold is not None and not 0 < said.threshold <= 1:
        problem = "no share"
        raise UserError(
            problem, file=table.path, key="threshold", found=said.threshold, allowed="above 0 to 1"
        )
    wide = all(role.kind in ("flag", "share") for role in columns) and said.kind != "single"
    if wide and (len(columns) > 1 or said.kind == "multi_label"):
        names = [role.name for role in columns]
        spaces: dict[str, Any] = {"labels": {"kind": "multi_label", "columns": names, **_treated(said)}}
        what = "0, 1 and shares" if any(role.kind == "share" for role in columns) else "0 and 1"
        lines = [f"labels: {len(names)} columns of {what} are one label space, {', '.join(names)}"]
    else:
        spaces, lines = {}, []
        levels = said.kind == "path" and len(columns) > 1
        for role in columns:
            space, line = _space(table, roles, role, replace(said, kind="single") if levels else said)
            spaces[space_name(role.name)] = space
            lines.append(line)
        if len(columns) > 1:
            ordered, why = _levels(table, roles, columns, as_named=levels)
            spaces["path"] = {"kind": "hierarchy", "levels": [space_name(name) for name in ordered]}
            lines.append(f"levels: {' > '.join(ordered)}, {why}")
    taken = {key for space in spaces.values() for key in space}
    given = {"separator": said.separator, "classes": said.names or None, **_treated(said)}
    for key, value in given.items():
        if value is not None and key not in taken:
            problem = "is not for these labels"
            raise UserError(problem, file=table.path, key=key, found=value, allowed=f"without {key}")
    return spaces, lines


def _levels(table: Table, roles: Roles, columns: Sequence[Role], *, as_named: bool) -> tuple[list[str], str]:
    """The columns coarse to fine, and how that is known. Raises UserError for columns that are no levels."""
    if as_named:
        return [role.name for role in columns], "as named"
    found = roles.levels([role for role in columns if role.kind in ("single", "flag")])
    if len(found) < len(columns):
        raise UserError(
            "not levels of one another: name the one to predict", file=table.path, key="labels",
            found=[f"{role.name} ({role.kind})" for role in columns],
            allowed="one; or with kind path levels, coarse first, whose names are told apart by their path",
        )  # fmt: skip
    return found, "since each class of one has one class above it"


def _treated(said: Said) -> dict[str, Any]:
    """How cells of 0 and 1 are read."""
    given = {"threshold": said.threshold, "missing": said.missing, "uncertain": said.uncertain}
    return {key: value for key, value in given.items() if value is not None}


def _space(table: Table, roles: Roles, role: Role, said: Said) -> tuple[dict[str, Any], str]:
    """The label space of a column, and a line on it."""
    guess = role.kind if role.kind in ("multi_label", "path") else "single"
    kind = said.kind or ("multi_label" if guess == "single" and said.separator else guess)
    space: dict[str, Any] = {"kind": kind, "column": role.name}
    said_so = f"labels: the column {role.name}"
    example = f"such as {role.example[:60]!r}"
    if kind == "path":
        sign = said.separator or role.sign or roles.sign_in(role.name)
        if sign is None:
            problem, allowed = "no sign stands between levels in most rows", "separator '/', or another"
            raise UserError(problem, file=table.path, key=role.name, found=role.example, allowed=allowed)
        more = "" if said.kind else "; with kind single it is one class"
        space["separator"] = sign
        return space, f"{said_so}, a path of levels divided at {sign!r}, {example}{more}"
    space |= {"classes": list(said.names)} if said.names else {}
    if kind == "single":
        return space, f"{said_so}, one a row, {example}"
    notation = role.notation
    numbers = notation is not None and notation.form in ("indicators", "shares")
    divided = said.separator or (notation.separator if notation and not numbers else None)
    space |= {"separator": divided} if divided else {}
    space |= _treated(said)
    how = (
        f", divided at {divided!r}" if divided else f", {notation.in_words()}" if notation and numbers else ""
    )
    return space, f"{said_so}, several a row{how}, {example}"


def _unused(roles: Roles, used: set[str | None]) -> list[str]:
    """Lines on columns that are not read."""
    repeats = {name: other for name, other in (roles.repeats or {}).items() if name not in used}
    lines = [f"left out: the column {name} says the same as {other}" for name, other in repeats.items()]
    texts = [role.name for role in roles.of("text") if role.name not in used]
    lines += [f"not read: the {_columns(texts)} of texts; text may name several"] if texts else []
    rest = [role for role in roles.columns if role.name not in {*used, *texts, *repeats}]
    labels = [role.name for role in rest if role.kind in ("single", "multi_label", "path", "flag", "share")]
    lines += [f"not read: the {_columns(labels)}, which may be labels"] if labels else []
    constant = [role.name for role in rest if role.kind == "constant"]
    lines += [f"not read: the {_columns(constant)}, with one value in all rows"] if constant else []
    return lines


def _columns(names: Sequence[str]) -> str:
    return f"{'column' if len(names) == 1 else 'columns'} {', '.join(names)}"


def space_name(column: str) -> str:
    """The name of a label space for a column."""
    name = re.sub(r"[^A-Za-z0-9_-]+", "_", column).strip("_-") or "labels"
    return f"{name}_label" if name in (*RESERVED, "path") else name
