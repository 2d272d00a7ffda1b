"""What the sources of tables share: columns as texts, images or vectors with label spaces.

The files are read twice: once for ids, splits and labels, which are checked whole, then once for the content.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, pairwise
from pathlib import Path
from typing import Any

from mlcl.data.format import SPLITS, DatasetInfo, LabelSpace
from mlcl.data.sources.common.distribution import in_batches
from mlcl.data.sources.common.label_reader import ClassReader, RatingReader
from mlcl.data.sources.common.label_spaces import (
    hierarchy_of,
    pairs_in_rows,
    pairs_of_paths,
    paths_in_file,
)
from mlcl.data.sources.common.table_options import AspectColumns, HierarchyOf, TableOptions
from mlcl.data.sources.common.table_splits import SPLIT_NAMES, TableRows, divide, split_of_file
from mlcl.data.split_assignment import digest_of
from mlcl.data.table_file import Row, TableFile
from mlcl.data.writer import write_dataset
from mlcl.errors import UserError


@dataclass
class _Read:
    """What the first reading keeps."""

    labels: dict[str, ClassReader | RatingReader]
    rows: TableRows = field(default_factory=TableRows)
    left_out: list[Row] = field(default_factory=list)
    dim: int | None = None

    @property
    def classes(self) -> dict[str, ClassReader]:
        """The readers of the label spaces that have classes."""
        return {name: its for name, its in self.labels.items() if isinstance(its, ClassReader)}

    def notes(self) -> list[str]:
        """What was recognised, and what was left out."""
        notes = [note for reader in self.classes.values() for note in reader.notes()]
        if self.left_out:
            first = self.left_out[0].place
            notes.append(
                f"rows without a text, which are left out: {len(self.left_out):,}, the first at {first}"
            )
        return notes


def write_table(
    folder: Path, options: TableOptions, tables: Sequence[TableFile], split_seed: int
) -> DatasetInfo:
    """Write a table as a data set. Raises UserError with file, place and column for the first bad value."""
    for table in tables:
        _check_columns(options, table)
    _check_levels(options)
    read = _first_reading(options, tables)
    classes = [reader.class_rows for reader in read.classes.values()]
    notes = divide(read.rows, classes, options.fractions, split_seed)
    spaces = _spaces(options, read)
    if not options.allow_untrained:
        _check_trained(options, read, spaces)
    return write_dataset(
        folder,
        name=options.name or options.path[0].stem,
        modality=options.modality,
        dim=read.dim,
        label_spaces=spaces,
        batches=_batches(options, read, chain.from_iterable(_rows(options, tables))),
        source=", ".join(path.name for path in options.path),
        licence=options.licence,
        allow_untrained=options.allow_untrained,
        notes=[*notes, *read.notes()],
    )


def _rows(options: TableOptions, tables: Sequence[TableFile]) -> list[Iterator[Row]]:
    return [table.rows(set(options.columns().values())) for table in tables]


def _check_columns(options: TableOptions, table: TableFile) -> None:
    if not options.content or not options.labels:
        key = "labels" if options.content else "text"
        raise UserError("say which column it is", file=table.path, key=key, **_example(table))
    for key, column in options.columns().items():
        table.require(column, key)


def _example(table: TableFile) -> dict[str, str]:
    """What was found and what is allowed, for a table of which no column is given."""
    first = next(table.rows(table.columns), Row(table.path, "", {})).values
    text = max(table.columns, key=lambda column: len(str(first.get(column, ""))))
    label = next((column for column in reversed(table.columns) if column != text), "COLUMN")
    given = f"text={text} 'labels={{{label}: {{kind: single, column: {label}}}}}'"
    found = f"the columns {', '.join(table.columns)}"
    return {"found": found, "allowed": f"for instance {given}; `mlcl init FILE` looks and asks"}


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


def _spaces(options: TableOptions, read: _Read) -> dict[str, LabelSpace]:
    """The label spaces; a hierarchy of multi-label ones with the parents of its classes."""
    spaces = {name: reader.space for name, reader in read.labels.items()}
    trees = {name: label for name, label in options.labels.items() if isinstance(label, HierarchyOf)}
    found = {name: _hierarchy(options, name, label, read, spaces) for name, label in trees.items()}
    return {name: found.get(name) or spaces[name] for name in options.labels}


def _hierarchy(
    options: TableOptions, name: str, label: HierarchyOf, read: _Read, spaces: Mapping[str, LabelSpace]
) -> LabelSpace:
    if spaces[label.levels[0]].kind != "multi_label":
        return LabelSpace(kind="hierarchy", levels=label.levels)
    if label.parents is not None:
        finest = spaces[label.levels[-1]].classes
        pairs = pairs_of_paths(paths_in_file(label.parents, label.levels, finest))
    else:
        rows = {level: read.classes[level].class_rows for level in label.levels}
        pairs = [
            pairs_in_rows(rows[fine], rows[coarse], spaces[fine], spaces[coarse])
            for coarse, fine in pairwise(label.levels)
        ]
    file, key = label.parents or options.path[0], f"labels.{name}.parents"
    return hierarchy_of(pairs, label.levels, spaces, file, key)


def _check_trained(options: TableOptions, read: _Read, spaces: Mapping[str, LabelSpace]) -> None:
    """Raises UserError for a label that only rows of the test split have, with the first of them."""
    for name, reader in read.classes.items():
        labels = reader.class_rows
        known = {
            c for row, split in zip(labels, read.rows.splits, strict=True) if split != "test" for c in row
        }
        for row, found in enumerate(labels):
            if unknown := set(found) - known:
                raise UserError(
                    f"label in the test split only, at {read.rows.places[row]}",
                    file=options.path[0],
                    key=name,
                    found=spaces[name].classes[min(unknown)],
                    allowed="labels that other rows have; with allow_untrained=true any",
                )


def _first_reading(options: TableOptions, tables: Sequence[TableFile]) -> _Read:
    read = _Read(
        {
            name: RatingReader(label) if isinstance(label, AspectColumns) else ClassReader(label)
            for name, label in options.labels.items()
            if not isinstance(label, HierarchyOf)
        }
    )
    of_files = _splits_of_files(options)
    places: dict[str, str] = {}
    for split, rows in zip(of_files, _rows(options, tables), strict=True):
        for row in rows:
            place = row.place if len(tables) == 1 else f"{row.place} of {row.file.name}"
            if _without_text(options, row):
                read.left_out.append(row)
                continue
            number = len(places) + len(read.left_out)
            row_id = str(number) if options.id is None else str(_filled(row, options.id))
            if row_id in places:
                problem = f"id of {place} stands in {places[row_id]} too"
                raise UserError(problem, file=row.file, key=options.id, found=row_id)
            places[row_id] = place
            _read_row(options, read, row)
            if options.split is not None:
                read.rows.splits.append(_split(row, options.split))
            elif split is not None:
                read.rows.splits.append(split)
    if len(read.left_out) > len(places):
        raise read.left_out[0].error("most rows have no text, the first", options.content)
    if not places:
        raise UserError("no rows", file=options.path[0])
    read.rows.ids, read.rows.places = list(places), list(places.values())
    return read


def _splits_of_files(options: TableOptions) -> list[str | None]:
    """The split that the name of each of several files says. Raises UserError where only some say one."""
    if options.split is not None or len(options.path) == 1:
        return [None] * len(options.path)
    found = [split_of_file(path) for path in options.path]
    if None in found and set(found) != {None}:
        file, allowed = options.path[found.index(None)], "a name such as test.csv, or split=COLUMN"
        raise UserError("the name says no split, as those of other files do", file=file, allowed=allowed)
    return found


def _read_row(options: TableOptions, read: _Read, row: Row) -> None:
    content = _filled(row, options.content)
    if options.modality == "text" and not isinstance(content, str | int | float):
        raise row.error("no text", options.content, type(content).__name__)
    if options.vectors is not None:
        read.dim = _dim(row, options.vectors, content, read.dim)
    read.rows.contents.append(digest_of(str(content) if options.text else str(content).encode()))
    if options.group is not None:
        read.rows.groups.append(str(_filled(row, options.group)).strip())
    for reader in read.labels.values():
        reader.add(row)


def _without_text(options: TableOptions, row: Row) -> bool:
    """Whether a row is left out: what has no text has nothing to read."""
    value = row.values.get(options.content)
    blank = value is None or value != value or (isinstance(value, str) and not value.strip())
    return blank and options.text is not None


def _filled(row: Row, column: str) -> Any:
    value = row.values.get(column)
    if value is None or (isinstance(value, str) and not value.strip()):
        raise row.error("empty", column)
    return value


def _dim(row: Row, column: str, value: Any, known: int | None) -> int:
    """The size of a vector, which all rows share."""
    vector = _vector(value)
    if not vector or len(vector) != (known or len(vector)):
        found = value if vector is None else f"{len(vector)} numbers"
        raise row.error("no vector of the first row's size", column, found, known)
    return len(vector)


def _vector(value: Any) -> list[float] | None:
    """The numbers of a list, or of a list as JSON; None for anything else."""
    try:
        found = json.loads(value) if isinstance(value, str) else value
        return [float(number) for number in found]
    except (TypeError, ValueError):
        return None


def _split(row: Row, column: str) -> str:
    found = str(row.values.get(column)).strip().lower()
    if found not in SPLIT_NAMES:
        raise row.error("unknown split", column, row.values.get(column), SPLITS)
    return SPLIT_NAMES[found]


def _batches(options: TableOptions, read: _Read, rows: Iterator[Row]) -> Iterator[dict[str, Any]]:
    labels = {name: reader.values for name, reader in read.labels.items()}
    columns = {"id": read.rows.ids, "split": read.rows.splits, **labels}
    return in_batches(
        columns, options.modality, (_content(options, row) for row in rows if not _without_text(options, row))
    )


def _content(options: TableOptions, row: Row) -> Any:
    value = row.values[options.content]
    if options.modality == "text":
        return str(value)
    if options.modality == "vectors":
        return _vector(value)
    if isinstance(value, Mapping):
        # The usual way to keep an image in Parquet: {"bytes": ..., "path": ...}.
        value = value.get("bytes") or value.get("path")
    if isinstance(value, bytes):
        return value
    try:
        return (row.file.parent / str(value)).read_bytes()
    except OSError as error:
        raise row.error("image cannot be read", options.content, error) from None
