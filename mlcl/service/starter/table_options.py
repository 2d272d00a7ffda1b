"""Chooses the options of a table's source: those that the user gives, and others from the columns."""

from __future__ import annotations

import fnmatch
import itertools
import re
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from mlcl.data.format import RESERVED
from mlcl.data.tables.files import Dialect, TableFile, suffix_of
from mlcl.data.tables.formats import open_table
from mlcl.data.tables.options import Treatment
from mlcl.data.tables.roles import ColumnRole, ColumnRoles, Kind, roles_of
from mlcl.errors import UserError

SOURCES = {
    ".csv": "csv", ".tsv": "csv", ".jsonl": "jsonl", ".ndjson": "jsonl", ".json": "jsonl",
    ".parquet": "parquet", ".txt": "txt",
}  # fmt: skip
FEWEST_FLAGS = 3
"""The least number of columns of 0 and 1 that are taken as labels even if other columns could be labels."""
OF_TABLE = ("encoding", "delimiter", "header", "allow_untrained", "twins")
"""Options that are passed unchanged to the source."""
OF_LABELS = ("separator", "classes", "threshold", "missing", "uncertain")
"""Options that are passed unchanged to a label space."""
OF_FLAGS = ("threshold", "missing", "uncertain")
"""Options that are passed to a label space of columns of 0 and 1."""
Ask = Callable[[str, Sequence[str], str], str]
"""A function that asks the user a question, given the possible answers and a default; returns the answer."""


@dataclass(frozen=True)
class UserOptions(Dialect):
    """The options that a user gives for a table; its columns decide the rest. `labels` may be patterns."""

    text: tuple[str, ...] = ()
    image: str | None = None
    vectors: str | None = None
    labels: tuple[str, ...] = ()
    kind: Literal["single", "multi_label", "path"] | None = None
    separator: str | None = None
    classes: tuple[str, ...] = ()
    threshold: float | None = None
    missing: Treatment | None = None
    uncertain: Treatment | None = None
    id: str | None = None
    split: str | None = None
    group: str | None = None
    twins: Literal["apart", "together"] = "apart"
    allow_untrained: bool = False

    def changed_options(self, keys: Sequence[str]) -> dict[str, Any]:
        """Returns the options named in `keys` that differ from their defaults, as plain data."""
        options = {
            key: getattr(self, key) for key in keys if getattr(self, key) != getattr(UserOptions(), key)
        }
        return {key: list(value) if isinstance(value, tuple) else value for key, value in options.items()}


def table_options(
    paths: Sequence[Path], given: UserOptions, ask: Ask | None = None
) -> tuple[str, dict[str, Any], list[str]]:
    """Returns the source that reads files with the same columns, its options, and lines on the choice.

    Raises UserError for a missing column, for a table without rows and, without `ask`, for an option that is
    not given and that the columns leave open.
    """
    tables = [open_table(path, given) for path in paths]
    table = tables[0]
    for other in tables[1:]:
        if missing := set(table.columns) - set(other.columns):
            problem = f"lacks columns that {table.path.name} has"
            raise UserError(problem, file=other.path, found=sorted(missing), allowed=list(table.columns))
    if next(table.chunks(table.columns[:1]), None) is None:
        raise UserError("no rows", file=paths[0])
    matches = (c for pattern in given.labels for c in fnmatch.filter(table.columns, pattern) or [pattern])
    labels = list(dict.fromkeys(matches))
    columns_by_key = {key: [getattr(given, key)] for key in ("image", "vectors", "id", "split", "group")}
    for key, columns in (*columns_by_key.items(), ("text", given.text), ("labels", labels)):
        for column in columns:
            if column is not None:
                table.require(column, key)
    choice = _ColumnChoice(table, roles_of(tables, labels, uncertain=given.uncertain is not None), given, ask)
    choice.check_answers()
    modality, content, lines = choice.content()
    roles = choice.labels(labels, {*content, given.group, given.id, given.split})
    spaces, space_lines = choice.spaces(roles)
    options: dict[str, Any] = {
        "path": str(paths[0]) if len(paths) == 1 else [str(path) for path in paths],
        modality: content[0] if len(content) == 1 else list(content),
        "labels": spaces,
    }
    row_keys = {"id": given.id or choice.roles.id, "split": given.split or choice.roles.split}
    keys = {
        key: name for key, name in {**row_keys, "group": given.group}.items() if name and name not in content
    }
    lines = [f"{table.path.name}: the columns {', '.join(table.columns)}", *lines, *space_lines]
    lines += [f"{key}: the column {column}" for key, column in keys.items()]
    lines += choice.describe_unused({*content, *(role.name for role in roles), *keys.values()})
    return (
        SOURCES.get(suffix_of(table.path), "txt"),
        {**options, **keys, **given.changed_options(OF_TABLE)},
        lines,
    )


@dataclass(frozen=True)
class _ColumnChoice:
    """Chooses columns by the user's options, the columns' roles, and the user's answers to questions."""

    table: TableFile
    roles: ColumnRoles
    given: UserOptions
    ask: Ask | None

    def _ask_column(self, key: str, question: str, names: Sequence[str]) -> str:
        """Returns the only name in `names`, or asks the user for one. Raises UserError without `ask`."""
        if len(names) == 1:
            return names[0]
        if self.ask is None:
            problem = f"several columns may be it: name one with {key}"
            raise UserError(problem, file=self.table.path, key=key, found=names)
        answer = self.ask(question, names, names[0])
        self.table.require(answer, key, names)
        return answer

    def check_answers(self) -> None:
        """Raises UserError for rows of Prodigy (with a column of hashes) that were not answered `accept`.

        Any answers are allowed if the column `answer` is given as labels.
        """
        frame = self.roles.rows.frame
        hash_columns = {"_input_hash", "_task_hash"} & set(self.table.columns)
        if hash_columns and "answer" in frame and "answer" not in self.given.labels:
            answers = sorted({str(cell) for cell in frame["answer"]})
            if answers != ["accept"]:
                file, problem = self.table.path, "rows whose labels are not accepted"
                raise UserError(problem, file=file, key="answer", found=answers, allowed="accept alone")

    def content(self) -> tuple[str, tuple[str, ...], list[str]]:
        """Returns the modality, the columns with its contents, and lines that describe them.

        Raises UserError if no column has contents, or several have the same kind and there is no `ask`.
        """
        options = self.given
        texts, images, vectors = (self.roles.of(kind) for kind in ("text", "image", "vectors"))
        if options.text:
            suffix = ", which are joined" if len(options.text) > 1 else ""
            return "text", options.text, [f"text: the {_column_text(options.text)}{suffix}"]
        for key, roles, column in (("image", images, options.image), ("vectors", vectors, options.vectors)):
            if column or (roles and not texts):
                names = [role.name for role in roles]
                name = column or self._ask_column(key, f"Which column is the {key}?", names)
                return key, (name,), [f"{key}: the column {name}"]
        if not texts:
            raise UserError(
                "no column looks like texts: name it", file=self.table.path, key="text",
                found=list(self.table.columns),
                allowed="text COLUMN, several to join them; image COLUMN; or vectors COLUMN",
            )  # fmt: skip
        names = [role.name for role in texts]
        if len(texts) > 1 and (texts[0].named or texts[0].words > 2 * texts[1].words):
            first, *others = map(_strip_number, names)
            names = names if texts[0].named and first in others else names[:1]
        name = self._ask_column("text", "Which column has the texts?", names)
        return "text", (name,), [f"text: the column {name}"]

    def labels(self, labels: Sequence[str], taken: set[str | None]) -> list[ColumnRole]:
        """Returns the roles of the columns named in `labels`, else of columns that are not `taken`.

        The latter are levels of a hierarchy, columns of 0 and 1, or one column; the user may be asked.
        Raises UserError if no column fits, or several do and there is no `ask`.
        """
        if labels:
            by_name = {role.name: role for role in self.roles.columns}
            return [by_name[name] for name in labels]
        roles, kinds = self.roles, ("flag",) if self.given.threshold is None else ("flag", "share")
        candidates = [
            role
            for role in roles.of("single", "multi_label", "path", *kinds)
            if role.name not in taken and role.name not in roles.repeats
        ]
        shares = [role.name for role in roles.of("share") if role.name not in taken and "share" not in kinds]
        problems = [role.problem for role in roles.of("other") if role.named and role.problem is not None]
        if problems and not candidates:
            raise problems[0]
        if not candidates or (len(shares) >= FEWEST_FLAGS and not any(role.named for role in candidates)):
            problem, allowed = "no column looks like labels: name it", "labels COLUMN, several for levels"
            if self.table.columns == ("text",) and suffix_of(self.table.path) == ".txt":
                allowed = "delimiter ';' or another, with header true or false; or the form of fastText"
            if shares:
                problem, allowed = "columns of shares need a threshold", "labels COLUMN with threshold 0.5"
            columns = shares or list(self.table.columns)
            raise UserError(problem, file=self.table.path, key="labels", found=columns, allowed=allowed)
        flags = [role for role in candidates if role.kind in kinds]
        other_roles = [role for role in candidates if role.kind not in kinds]
        named_roles = [role for role in other_roles if role.named]
        if len(flags) < FEWEST_FLAGS:
            named_roles += [role for role in flags if role.named]
        self._check_siblings(named_roles)
        if self._are_levels(candidates, named_roles[0].name if len(named_roles) == 1 else ""):
            return candidates
        if flags and (not other_roles or (len(flags) >= FEWEST_FLAGS and not named_roles)):
            return flags
        if len(named_roles) == 1 or len(candidates) == 1:
            return (named_roles or candidates)[:1]
        if self._are_levels(named_roles):
            return named_roles
        question = "Which column has the labels to predict?"
        name = self._ask_column("labels", question, [role.name for role in candidates])
        return [role for role in candidates if role.name == name]

    def _check_siblings(self, roles: Sequence[ColumnRole]) -> None:
        """Raises UserError if `roles` is one column of several such as `label1 label2`."""
        if len(roles) == 1 and (stem := roles[0].name.rstrip("0123456789")) != roles[0].name:
            names = [role.name for role in self.roles.columns if role.kind != "constant"]
            siblings = [name for name in names if name.rstrip("0123456789") == stem]
            siblings = [name for name in siblings if name not in self.roles.repeats]
            if len(siblings) > 1:
                file, problem = self.table.path, "one label or several in these columns: name it"
                allowed = "one of them; or all in one, such as a;b"
                raise UserError(problem, file=file, key="labels", found=siblings, allowed=allowed)

    def _are_levels(self, roles: Sequence[ColumnRole], name: str = "") -> bool:
        """Whether the columns are levels, and the name of the finest contains `name` without its number."""
        levels = self.roles.levels(roles) if all(role.kind == "single" for role in roles) else []
        return bool(levels) and name.lower().rstrip("0123456789") in levels[-1].lower()

    def spaces(self, columns: Sequence[ColumnRole]) -> tuple[dict[str, Any], list[str]]:
        """Returns the source's option `labels` for `columns`, keyed by label space, and lines about it."""
        options, file = self.given, self.table.path
        if options.threshold is not None and not 0 < options.threshold <= 1:
            threshold, allowed = options.threshold, "above 0 to 1"
            raise UserError("no share", file=file, key="threshold", found=threshold, allowed=allowed)
        wide = all(role.kind in ("flag", "share") for role in columns) and options.kind != "single"
        spaces: dict[str, Any] = {}
        if wide and (len(columns) > 1 or options.kind == "multi_label"):
            names = [role.name for role in columns]
            spaces["labels"] = {"kind": "multi_label", "columns": names, **options.changed_options(OF_FLAGS)}
            values = "0, 1 and shares" if any(role.kind == "share" for role in columns) else "0 and 1"
            lines = [f"labels: {len(names)} columns of {values} are one label space, {', '.join(names)}"]
        else:
            lines = []
            as_named = options.kind == "path" and len(columns) > 1
            for role in columns:
                space, line = self._space(role, replace(options, kind="single") if as_named else options)
                spaces[new_name(role.name, "labels", (*RESERVED, "path"), spaces)] = space
                lines.append(line)
            if len(columns) > 1:
                levels, reason = [role.name for role in columns], "as named"
                if not as_named:
                    levels, reason = self._levels(columns), "since each class of one has one class above it"
                space_names = {space["column"]: name for name, space in spaces.items()}
                spaces["path"] = {"kind": "hierarchy", "levels": [space_names[name] for name in levels]}
                lines.append(f"levels: {' > '.join(levels)}, {reason}")
        space_keys = {key for space in spaces.values() for key in space}
        for key, value in options.changed_options(OF_LABELS).items():
            if key not in space_keys:
                problem, allowed = "is not for these labels", f"without {key}"
                raise UserError(problem, file=file, key=key, found=value, allowed=allowed)
        return spaces, lines

    def _levels(self, columns: Sequence[ColumnRole]) -> list[str]:
        """Returns the columns' names, coarse to fine. Raises UserError if the columns do not form levels."""
        if self.given.kind == "single":  # a sign within a name divides nothing
            split_kinds = ("multi_label", "path")
            columns = [replace(r, kind="single") if r.kind in split_kinds else r for r in columns]
        levels = self.roles.levels([role for role in columns if role.kind in ("single", "flag")])
        if len(levels) < len(columns):
            problem = "not levels of one another: name the one to predict"
            allowed = "one; or with kind path levels, coarse first, whose names are told apart by their path"
            kinds = [f"{role.name} ({role.kind})" for role in columns]
            raise UserError(problem, file=self.table.path, key="labels", found=kinds, allowed=allowed)
        return levels

    def _space(self, role: ColumnRole, options: UserOptions) -> tuple[dict[str, Any], str]:
        guess = role.kind if role.kind in ("multi_label", "path") else "single"
        kind = options.kind or ("multi_label" if guess == "single" and options.separator else guess)
        space: dict[str, Any] = {"kind": kind, "column": role.name}
        start, example = f"labels: the column {role.name}", f"such as {role.example[:60]!r}"
        if kind == "path":
            sign = options.separator or role.sign or self.roles.sign_in(role.name)
            if sign is None:
                problem = "no sign stands between levels in most rows"
                allowed = "separator '/', or another; a list is no path"
                file = self.table.path
                raise UserError(problem, file=file, key=role.name, found=role.example, allowed=allowed)
            hint = "" if options.kind else "; with kind single it is one class"
            space["separator"] = sign
            return space, f"{start}, a path of levels divided at {sign!r}, {example}{hint}"
        space |= options.changed_options(["classes"])
        if kind == "single":
            return space, f"{start}, one a row, {example}"
        notation = role.notation
        numbers = notation is not None and notation.form in ("indicators", "shares")
        separator = options.separator or (notation.separator if notation and not numbers else None)
        detail = f", {notation.in_words()}" if notation and numbers else ""
        if separator:
            space["separator"], detail = separator, f", divided at {separator!r}"
        return space | options.changed_options(OF_FLAGS), f"{start}, several a row{detail}, {example}"

    def describe_unused(self, used: set[str]) -> list[str]:
        """Returns lines that name the columns that are not read, given the names of those that are."""
        repeats = {name: other for name, other in self.roles.repeats.items() if name not in used}
        lines = [f"left out: the column {name} says the same as {other}" for name, other in repeats.items()]
        for suffix, kinds in UNUSED.items():
            roles = self.roles.of(*kinds) if kinds == ("text",) else self.roles.columns
            names = [r.name for r in roles if r.kind in kinds and r.name not in {*used, *repeats}]
            lines += [f"not read: the {_column_text(names)}{suffix}"] if names else []
        return lines


UNUSED: dict[str, tuple[Kind, ...]] = {
    " of texts; text may name several": ("text",),
    " of images or vectors; image or vectors names one": ("image", "vectors"),
    ", which may be labels": ("single", "multi_label", "path", "flag", "share"),
    ", with one value in all rows": ("constant",),
    ", with neither texts nor labels": ("other",),
}
"""Kinds of columns that are not read, keyed by the end of the line that names such columns."""


def _strip_number(name: str) -> str:
    """Returns a column's name in small letters without a number, or a letter a or b, at its end."""
    return re.sub(r"[_-]?([ab]|\d+)$", "", name.lower())


def _column_text(names: Sequence[str]) -> str:
    return f"{'column' if len(names) == 1 else 'columns'} {', '.join(names)}"


def new_name(text: str, default: str, reserved: Collection[str], taken: Collection[str]) -> str:
    """Returns a name of letters, digits, _ and - made of `text`, which is neither `reserved` nor `taken`."""
    name = re.sub(r"[^A-Za-z0-9_-]+", "_", text).strip("_-") or default
    name = f"{name}_label" if name in reserved else name
    candidates = (f"{name}_{number}" for number in itertools.count(2))
    return next(candidate for candidate in itertools.chain([name], candidates) if candidate not in taken)
