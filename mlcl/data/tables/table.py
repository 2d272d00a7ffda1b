"""Tables as data sets: columns of texts, images or vectors, with label spaces.

The files are read twice: once for ids, splits and labels, which are checked whole, then once for the content.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mlcl.data.format import SPLITS, LabelSpace
from mlcl.data.source import NewDataset
from mlcl.data.split_assignment import digest_of, image_digest, twin_form
from mlcl.data.tables.files import Table
from mlcl.data.tables.hierarchies import levels_of, multi_label_hierarchy, tell_apart
from mlcl.data.tables.indicators import read_ratings
from mlcl.data.tables.label_columns import Labels
from mlcl.data.tables.labels import read_labels
from mlcl.data.tables.options import (
    AspectColumns,
    HierarchyOf,
    MultiLabelColumn,
    PathColumn,
    SingleColumn,
    TableOptions,
)
from mlcl.data.tables.rows import EMPTY, Content, ImageFiles, Rows, Unreadable, read_contents
from mlcl.data.tables.splits import SPLIT_NAMES, SplitRows, divide, split_of_name
from mlcl.data.writer import in_batches
from mlcl.errors import UserError


def read_table(options: TableOptions, tables: Sequence[Table], split_seed: int) -> NewDataset:
    """Tables as a data set. Raises UserError with file, line and column for the first bad value."""
    for table in tables:
        _check_columns(options, table)
    _check_levels(options)
    columns = options.columns(tables[0].columns)
    content = _read_contents(options, tables)
    rows = Rows.of(tables, {c for key, c in columns.items() if key.partition(".")[0] != options.modality})
    kept = [row for row, its in enumerate(content.digests) if its is not None]
    if not kept and not content.problems:
        raise UserError("no rows", file=options.path[0])
    left_out = _left_out(rows, content.problems, options) if content.problems else []
    ratings, labels = _labels(options, rows.only(kept))
    drop = {row for its in labels.values() for row in its.left_out}
    stay = [row for row in range(len(kept)) if row not in drop]
    rows, kept = rows.only([kept[row] for row in stay]), [kept[row] for row in stay]
    labels = {name: its.only(stay) for name, its in labels.items()}
    ratings = {name: [its[row] for row in stay] for name, its in ratings.items()}
    spaces = _spaces(options, rows, labels)
    notes = [note for its in labels.values() for note in its.notes]
    classes = [its.indices(spaces[name]) for name, its in labels.items()]
    placed = _placed(options, rows, kept, content)
    told = divide(placed, classes, options.fractions, split_seed)
    held: dict[str, Any] = {"id": placed.ids, "split": placed.splits, **ratings}
    for name, its in labels.items():
        held |= its.columns(name, spaces[name])
    return NewDataset(
        options.modality,
        spaces,
        in_batches(held, options.modality, _kept_contents(options, tables, kept)),
        list(dict.fromkeys([*told, *notes, *left_out])),
        options.allow_untrained,
        content.dim,
        name=options.name or options.path[0].stem,
        origin=", ".join(path.name for path in options.path),
        licence=options.licence,
    )


MOST_LEFT_OUT = 0.95
"""Share of rows without a content above which another column must be meant."""


@dataclass
class _Contents:
    """A digest of each row's content, None of one that is left out; its twin form; why rows are left out."""

    digests: list[bytes | None]
    twins: list[str]
    problems: dict[int, Unreadable]
    dim: int | None = None


def _read_contents(options: TableOptions, tables: Sequence[Table]) -> _Contents:
    """All contents, once. Raises UserError for a vector that cannot be read."""
    read = _Contents([], [], {})
    for table in tables:
        for place, its in _contents(options, table):
            if isinstance(its, Unreadable):
                if options.modality == "vectors":
                    where = f"{its.problem} at {table.unit} {place}"
                    raise UserError(where, file=table.path, key=options.content[0], found=its.found)
                read.problems[len(read.digests)] = its
                read.digests.append(None)
                read.twins.append("")
                continue
            if isinstance(its, list):
                read.dim = _dim(options, table, place, its, read.dim)
            read.digests.append(_digest(its))
            if options.twins == "together" and isinstance(its, str):
                read.twins.append(twin_form(its))
            else:
                read.twins.append(str(len(read.twins)))
    return read


def _contents(options: TableOptions, table: Table) -> Iterator[tuple[Any, Content | Unreadable]]:
    """The place and the content of each row."""
    files = ImageFiles(table.path.parent)
    for frame in table.chunks(options.content):
        yield from zip(
            frame.index, read_contents(frame, options.modality, options.content, files), strict=True
        )


def _digest(content: Content) -> bytes:
    if isinstance(content, str):
        return digest_of(content)
    if isinstance(content, list):
        return digest_of(str(content).encode())
    return image_digest(content if isinstance(content, bytes) else content.read_bytes())


def _dim(options: TableOptions, table: Table, place: Any, vector: list[float], known: int | None) -> int:
    """The size of a vector, which all rows share."""
    if not vector or len(vector) != (known or len(vector)):
        problem = f"no vector of the first row's size at {table.unit} {place}"
        found, key = f"{len(vector)} numbers", options.content[0]
        raise UserError(problem, file=table.path, key=key, found=found, allowed=known)
    return len(vector)


def _left_out(rows: Rows, problems: Mapping[int, Unreadable], options: TableOptions) -> list[str]:
    """A sentence on rows without a text, or an image file. Raises UserError where nearly all are."""
    first, column = min(problems), options.content[0]
    what = options.modality
    if len(problems) > MOST_LEFT_OUT * len(rows):
        problem = f"{len(problems):,} of {len(rows):,} rows have no {what}, the first"
        raise rows.error(first, problem, column, problems[first].found)
    other = Counter(its.problem for its in problems.values() if its.problem != EMPTY)
    more = "".join(f"; {problem}: {count:,}" for problem, count in other.items())
    article = "an image" if what == "image" else "a text"
    said = f"rows without {article}, which are left out: {len(problems):,}, the first at {rows.place(first)}"
    return [said + more]


def _check_columns(options: TableOptions, table: Table) -> None:
    if not options.content or not options.labels:
        raise UserError(
            "say which column it is", file=table.path, key="labels" if options.content else "text",
            found=f"the columns {', '.join(table.columns)}",
            allowed="for instance text body and labels {topic: {kind: single, column: topic}}; "
            "`mlcl init FILE` looks and asks",
        )  # fmt: skip
    for key, column in options.columns(table.columns).items():
        table.require(column, key)


def _check_levels(options: TableOptions) -> None:
    for name, label in options.labels.items():
        levels = label.levels if isinstance(label, HierarchyOf) else ()
        several = [other for other, its in options.labels.items() if its.kind == "multi_label"]
        kind = "multi_label" if set(levels[:1]) <= set(several) else "single"
        fitting = [other for other, its in options.labels.items() if its.kind == kind]
        for level in levels:
            if level not in fitting:
                problem, key = f"not a {kind} label space", f"labels.{name}.levels"
                raise UserError(problem, file=options.path[0], key=key, found=level, allowed=fitting)


def _labels(options: TableOptions, rows: Rows) -> tuple[dict[str, list[list[float]]], dict[str, Labels]]:
    """Ratings and labels by label space; classes of a hierarchy are told apart by their paths."""
    ratings, labels = {}, dict[str, Labels]()
    for name, label in options.labels.items():
        if isinstance(label, AspectColumns):
            ratings[name] = read_ratings(rows, label)
        elif isinstance(label, PathColumn):
            labels |= levels_of(rows, name, label)
        elif isinstance(label, SingleColumn | MultiLabelColumn):
            labels[name] = read_labels(rows, label)
    for label in options.labels.values():
        if isinstance(label, HierarchyOf) and labels[label.levels[0]].kind == "single":
            labels |= tell_apart({level: labels[level] for level in label.levels}, rows)
    return ratings, labels


def _spaces(options: TableOptions, rows: Rows, labels: Mapping[str, Labels]) -> dict[str, LabelSpace]:
    """The label spaces, hierarchies among them."""
    found = {name: its.space() for name, its in labels.items()}
    spaces: dict[str, LabelSpace] = {}
    for name, label in options.labels.items():
        if isinstance(label, AspectColumns):
            aspects = tuple(label.wanted(rows.tables[0].columns).values())
            spaces[name] = LabelSpace(kind="aspects", aspects=aspects, scale=label.scale)
        elif isinstance(label, PathColumn):
            levels = [level for level in found if level.startswith(f"{name}_level")]
            spaces |= {level: found[level] for level in levels}
            spaces[name] = LabelSpace(kind="hierarchy", levels=tuple(levels))
        elif isinstance(label, HierarchyOf) and labels[label.levels[0]].kind == "multi_label":
            file, key = label.parents or options.path[0], f"labels.{name}.parents"
            spaces[name] = multi_label_hierarchy(label, labels, found, file, key)
        elif isinstance(label, HierarchyOf):
            spaces[name] = LabelSpace(kind="hierarchy", levels=label.levels)
        else:
            spaces[name] = found[name]
    return spaces


def _placed(options: TableOptions, rows: Rows, kept: Sequence[int], content: _Contents) -> SplitRows:
    """Ids, groups and splits of rows. Raises UserError for an empty one and for an id that comes twice."""
    places = [rows.place(row) for row in range(len(rows))]
    ids = list(map(str, kept)) if options.id is None else _filled(rows, options.id)
    first: dict[str, int] = {}
    for row, row_id in enumerate(ids):
        if first.setdefault(row_id, row) != row:
            problem = f"id of {places[row]} stands in {places[first[row_id]]} too"
            file = rows.tables[rows.keys[row][0]].path
            raise UserError(problem, file=file, key=options.id, found=row_id)
    return SplitRows(
        ids,
        places,
        [digest for row in kept if (digest := content.digests[row]) is not None],
        [] if options.group is None else _filled(rows, options.group),
        _given_splits(options, rows),
        [content.twins[row] for row in kept],
    )


def _given_splits(options: TableOptions, rows: Rows) -> list[str]:
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


def _filled(rows: Rows, column: str) -> list[str]:
    values = list(rows.frame[column])
    for row, value in enumerate(values):
        if value is None or value != value or (isinstance(value, str) and not value.strip()):
            raise rows.error(row, "empty", column)
    return [str(value).strip() for value in values]


def _kept_contents(
    options: TableOptions, tables: Sequence[Table], kept: Sequence[int]
) -> Iterator[str | bytes | list[float]]:
    """The contents of the rows that are kept, read once more."""
    row, wanted = -1, set(kept)
    for table in tables:
        for _, its in _contents(options, table):
            row += 1
            if row in wanted and not isinstance(its, Unreadable):
                yield its.read_bytes() if isinstance(its, Path) else its
