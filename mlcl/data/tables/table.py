"""Tables as data sets: columns of texts, images or vectors, with label spaces.

The files are read twice: once for ids, splits and labels, which are checked whole, then once for the content.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mlcl.data.format import GROUP, SPLITS
from mlcl.data.source import NewDataset
from mlcl.data.split_assignment import (
    SPLIT_NAMES,
    RowKeys,
    digest_of,
    divide,
    image_digest,
    split_of_name,
    twin_form,
)
from mlcl.data.tables.files import TableFile
from mlcl.data.tables.labels import Labels
from mlcl.data.tables.options import TableOptions
from mlcl.data.tables.rows import EMPTY, Content, ImageFiles, TableRows, Unreadable, read_contents
from mlcl.data.tables.spaces import check_levels, read_columns, spaces_of
from mlcl.data.writer import in_batches
from mlcl.errors import UserError

MOST_LEFT_OUT = 0.95
"""Share of rows without a content above which another column must be meant."""


def read_table(options: TableOptions, tables: Sequence[TableFile], split_seed: int) -> NewDataset:
    """Tables as a data set. Raises UserError with file, line and column for the first bad value."""
    for table in tables:
        _check_columns(options, table)
    check_levels(options)
    columns = options.columns(tables[0].columns)
    rows = TableRows.of(
        tables, {c for key, c in columns.items() if key.partition(".")[0] != options.modality}
    )
    content = _read_contents(options, rows)
    kept = [row for row, digest in enumerate(content.digests) if digest is not None]
    if not content.digests:
        raise UserError("no rows", file=options.path[0])
    left_out = _left_out(rows, content.problems, options) if content.problems else []
    labels = read_columns(options, rows.only(kept))
    drop = {row for its in labels.values() if isinstance(its, Labels) for row in its.left_out}
    stay = [row for row in range(len(kept)) if row not in drop]
    kept = [kept[row] for row in stay]
    rows = rows.only(kept)
    labels = {name: its.only(stay) for name, its in labels.items()}
    spaces = spaces_of(options, rows, labels)
    named = {name: its for name, its in labels.items() if isinstance(its, Labels)}
    keys = _row_keys(options, rows, kept, content)
    notes = divide(keys, [its.indices(spaces[n]) for n, its in named.items()], options.fractions, split_seed)
    notes += [note for its in named.values() for note in its.notes]
    held: dict[str, Any] = {"id": keys.ids, "split": keys.splits} | (
        {GROUP: keys.groups} if keys.groups else {}
    )
    for name, its in labels.items():
        held |= its.columns(name, spaces[name])
    return NewDataset(
        options.modality,
        spaces,
        in_batches(held, options.modality, _kept_contents(options, tables, set(kept))),
        list(dict.fromkeys([*notes, *left_out])),
        options.allow_untrained,
        content.dim,
        grouped=bool(keys.groups),
        name=options.name or options.path[0].stem,
        origin=", ".join(path.name for path in options.path),
        licence=options.licence,
    )


def _check_columns(options: TableOptions, table: TableFile) -> None:
    if not options.content or not options.labels:
        raise UserError(
            "say which column it is", file=table.path, key="labels" if options.content else "text",
            found=f"the columns {', '.join(table.columns)}",
            allowed="for instance text body and labels {topic: {kind: single, column: topic}}; "
            "`mlcl init FILE` looks and asks",
        )  # fmt: skip
    for key, column in options.columns(table.columns).items():
        table.require(column, key)


@dataclass
class _Contents:
    """A digest of each row's content, None where it is left out; its twin form; the reasons to leave out."""

    digests: list[bytes | None] = field(default_factory=list)
    twins: list[str] = field(default_factory=list)
    problems: dict[int, Unreadable] = field(default_factory=dict)
    dim: int | None = None


def _read_contents(options: TableOptions, rows: TableRows) -> _Contents:
    """All contents, once. Raises UserError for a vector that cannot be read or has another size."""
    read, column = _Contents(), options.content[0] if options.content else ""
    for row, its in enumerate(_contents(options, rows.tables)):
        twin, digest = str(row), None
        if isinstance(its, Unreadable):
            if options.modality == "vectors":
                raise rows.error(row, its.problem, column, its.found)
            read.problems[row] = its
        elif isinstance(its, list):
            if not its or len(its) != (read.dim or len(its)):
                problem = "no vector of the first row's size"
                raise rows.error(row, problem, column, f"{len(its)} numbers", read.dim)
            read.dim, digest = len(its), digest_of(str(its).encode())
        elif isinstance(its, str):
            digest = digest_of(its)
            twin = twin_form(its) if options.twins == "together" else twin
        else:
            digest = image_digest(its if isinstance(its, bytes) else its.read_bytes())
        read.digests.append(digest)
        read.twins.append(twin)
    return read


def _contents(options: TableOptions, tables: Sequence[TableFile]) -> Iterator[Content | Unreadable]:
    """The content of each row."""
    for table in tables:
        files = ImageFiles(table.path.parent)
        for frame in table.chunks(options.content):
            yield from read_contents(frame, options.modality, options.content, files)


def _kept_contents(
    options: TableOptions, tables: Sequence[TableFile], kept: set[int]
) -> Iterator[str | bytes | list[float]]:
    """The contents of the rows that are kept, read once more."""
    for row, its in enumerate(_contents(options, tables)):
        if row in kept and not isinstance(its, Unreadable):
            yield its.read_bytes() if isinstance(its, Path) else its


def _left_out(rows: TableRows, problems: dict[int, Unreadable], options: TableOptions) -> list[str]:
    """A note on rows without a text, or an image file. Raises UserError where nearly all are."""
    first, what = min(problems), options.modality
    if len(problems) > MOST_LEFT_OUT * len(rows):
        problem = f"{len(problems):,} of {len(rows):,} rows have no {what}, the first"
        raise rows.error(first, problem, options.content[0], problems[first].found)
    other = Counter(its.problem for its in problems.values() if its.problem != EMPTY)
    more = "".join(f"; {problem}: {count:,}" for problem, count in other.items())
    article = "an image" if what == "image" else "a text"
    said = f"rows without {article}, which are left out: {len(problems):,}, the first at {rows.place(first)}"
    return [said + more]


def _row_keys(options: TableOptions, rows: TableRows, kept: Sequence[int], content: _Contents) -> RowKeys:
    """Ids, groups and splits of rows. Raises UserError for an empty one and for an id that comes twice."""
    places = [rows.place(row) for row in range(len(rows))]
    ids = list(map(str, kept)) if options.id is None else _filled(rows, options.id)
    first: dict[str, int] = {}
    for row, row_id in enumerate(ids):
        if first.setdefault(row_id, row) != row:
            problem = f"id of {places[row]} stands in {places[first[row_id]]} too"
            file = rows.tables[rows.keys[row][0]].path
            raise UserError(problem, file=file, key=options.id, found=row_id)
    return RowKeys(
        ids,
        places,
        [digest for row in kept if (digest := content.digests[row]) is not None],
        [] if options.group is None else _filled(rows, options.group),
        _given_splits(options, rows),
        [content.twins[row] for row in kept],
    )


def _given_splits(options: TableOptions, rows: TableRows) -> list[str]:
    """The split of each row where a column, or the names of several files, say it; else none."""
    if options.split is not None:
        names = [str(value).strip() for value in rows.frame[options.split]]
        found = {name: SPLIT_NAMES.get(name.lower()) for name in set(names)}
        for row, name in enumerate(names):
            if found[name] is None:
                raise rows.error(row, "unknown split", options.split, name, SPLITS)
        return [str(found[name]) for name in names]
    of_files = [split_of_name(path.name) if len(options.path) > 1 else None for path in options.path]
    if None in of_files and set(of_files) != {None}:
        file, allowed = options.path[of_files.index(None)], "a name such as test.csv, or a column with split"
        raise UserError("the name says no split, as those of other files do", file=file, allowed=allowed)
    return [] if None in of_files else [str(of_files[table]) for table, _ in rows.keys]


def _filled(rows: TableRows, column: str) -> list[str]:
    values = list(rows.frame[column])
    for row, value in enumerate(values):
        if value is None or value != value or (isinstance(value, str) and not value.strip()):
            raise rows.error(row, "empty", column)
    return [str(value).strip() for value in values]
