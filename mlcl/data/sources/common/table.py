"""What the sources `csv` and `parquet` share: columns of a table as texts or images with label spaces.

The table is read twice: once for ids, splits and labels, which are checked whole, then once for the content.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple, Self

from pydantic import Field, field_validator, model_validator

from mlcl.config.section import Section
from mlcl.data.format import SPLITS, DatasetInfo, LabelSpace, Modality
from mlcl.data.sources.common.class_parents import (
    hierarchy_of,
    pairs_in_rows,
    pairs_of_paths,
    paths_in_file,
)
from mlcl.data.sources.common.distribution import file_state, in_batches
from mlcl.data.sources.common.label_column import HierarchyOf, LabelColumns
from mlcl.data.sources.common.label_reader import LabelReader
from mlcl.data.sources.common.user_path import UserPath
from mlcl.data.split_assignment import FRACTIONS, assign, train_every_class
from mlcl.data.writer import write_dataset
from mlcl.errors import UserError

SPLIT_NAMES = {name: name for name in SPLITS} | {
    "val": "validation",
    "valid": "validation",
    "dev": "validation",
}
"""How a split may be written."""
LONGEST_FIELD = 1 << 27
"""Characters of one field of a CSV file; the module's own limit of 131,072 is short for clinical notes."""


class Row(NamedTuple):
    """One row, and what to call its place in messages ("line 7")."""

    place: str
    values: Mapping[str, Any]


class TableOptions(Section):
    """How the columns of a table are read."""

    path: UserPath = Field(description="the file")
    text: str | None = Field(None, description="column of the text")
    image: str | None = Field(None, description="column of the image: a file beside the table, or its bytes")
    vectors: str | None = Field(None, description="column of a vector: a list of numbers, in CSV as JSON")
    id: str | None = Field(None, description="column of a unique id; default: the row's number")
    labels: LabelColumns = Field(description="label space to its column")
    split: str | None = Field(None, description="column of the split; default: a seeded hash of the id")
    fractions: tuple[float, float, float] = Field(
        FRACTIONS, description="train, validation, test, without split"
    )
    name: str | None = Field(None, description="default: the file's name")
    licence: str = Field("not stated", description="the data's licence")
    allow_untrained: bool = Field(False, description="accept labels that only the test split has")

    @model_validator(mode="after")
    def _one_content(self) -> Self:
        if sum(column is not None for column in (self.text, self.image, self.vectors)) != 1:
            raise ValueError("give exactly one of text, image and vectors")
        return self

    @field_validator("fractions")
    @classmethod
    def _whole(cls, fractions: tuple[float, float, float]) -> tuple[float, float, float]:
        if min(fractions) < 0 or abs(sum(fractions) - 1) > 1e-9 or fractions[0] == 0:
            raise ValueError("fractions must add up to 1, with some for train")
        return fractions

    @property
    def modality(self) -> Modality:
        """text, image or vectors."""
        if self.vectors is not None:
            return "vectors"
        return "text" if self.text is not None else "image"

    @property
    def content(self) -> str:
        """The column of the text, the image or the vector."""
        return self.text or self.image or self.vectors or ""


def state(options: TableOptions) -> list[Any]:
    """Plain data that changes when the files do. Raises UserError for a file that is not there."""
    files = {"path": options.path}
    for name, label in options.labels.items():
        if isinstance(label, HierarchyOf) and label.parents is not None:
            files[f"labels.{name}.parents"] = label.parents
    for key, file in files.items():
        if not file.is_file():
            raise UserError("no such file", file=file, key=f"data.options.{key}")
    return [part for file in files.values() for part in file_state(file)]


@dataclass
class _Read:
    """What the first reading keeps."""

    ids: list[str]
    splits: list[str]
    labels: dict[str, LabelReader]
    dim: int | None = None


def write_table(
    folder: Path,
    options: TableOptions,
    columns: list[str],
    rows: Callable[[], Iterator[Row]],
    split_seed: int,
) -> DatasetInfo:
    """Write a table as a data set. Raises UserError with file, place and column for the first bad value."""
    _check_columns(options, columns)
    read = _first_reading(options, rows())
    if options.split is None:
        read.splits = [assign(row_id, split_seed, options.fractions) for row_id in read.ids]
        classes = [own for reader in read.labels.values() if (own := reader.class_rows())]
        train_every_class(read.splits, classes, read.ids, split_seed)
    return write_dataset(
        folder,
        name=options.name or options.path.stem,
        modality=options.modality,
        dim=read.dim,
        label_spaces=_spaces(options, read),
        batches=_batches(options, read, rows()),
        source=str(options.path.name),
        licence=options.licence,
        allow_untrained=options.allow_untrained,
    )


def _check_columns(options: TableOptions, columns: list[str]) -> None:
    wanted = {"id": options.id, "split": options.split, options.modality: options.content}
    for name, label in options.labels.items():
        wanted |= {f"labels.{name}.{key}": column for key, column in label.wanted().items()}
    for key, column in wanted.items():
        if column is not None and column not in columns:
            raise UserError("no such column", file=options.path, key=key, found=column, allowed=columns)
    for name, label in options.labels.items():
        levels = label.levels_of()
        several = [other for other, its in options.labels.items() if its.kind == "multi_label"]
        kind = "multi_label" if set(levels[:1]) <= set(several) else "single"
        fitting = [other for other, its in options.labels.items() if its.kind == kind]
        for level in levels:
            if level not in fitting:
                problem, key = f"not a {kind} label space", f"labels.{name}.levels"
                raise UserError(problem, file=options.path, key=key, found=level, allowed=fitting)


def _spaces(options: TableOptions, read: _Read) -> dict[str, LabelSpace]:
    """The label spaces; a hierarchy of multi-label ones with the parents of its classes."""
    spaces = {name: reader.space() for name, reader in read.labels.items()}
    for name, label in options.labels.items():
        if not isinstance(label, HierarchyOf) or spaces[label.levels[0]].kind != "multi_label":
            continue
        if label.parents is not None:
            finest = spaces[label.levels[-1]].classes
            pairs = pairs_of_paths(paths_in_file(label.parents, label.levels, finest))
        else:
            rows = {level: read.labels[level].class_rows() for level in label.levels}
            pairs = [
                pairs_in_rows(rows[fine], rows[coarse], spaces[fine], spaces[coarse])
                for coarse, fine in pairwise(label.levels)
            ]
        file, key = label.parents or options.path, f"labels.{name}.parents"
        spaces[name] = hierarchy_of(pairs, label.levels, spaces, file, key)
    return spaces


def _first_reading(options: TableOptions, rows: Iterator[Row]) -> _Read:
    read = _Read(
        [], [], {name: LabelReader(name, label, options.path) for name, label in options.labels.items()}
    )
    places: dict[str, str] = {}
    for number, row in enumerate(rows):
        row_id = str(number) if options.id is None else str(_filled(options, row, options.id))
        if row_id in places:
            raise UserError(
                f"id of {row.place} stands in {places[row_id]} too", file=options.path, found=row_id
            )
        places[row_id] = row.place
        read.ids.append(row_id)
        content = _filled(options, row, options.content)
        if options.vectors is not None:
            read.dim = _dim(options, row.place, content, read.dim)
        if options.split is not None:
            read.splits.append(_split(options, row, options.split))
        for reader in read.labels.values():
            reader.add(row.place, row.values)
    if not read.ids:
        raise UserError("no rows", file=options.path)
    return read


def _filled(options: TableOptions, row: Row, column: str) -> Any:
    value = row.values[column]
    if value is None or (isinstance(value, str) and not value.strip()):
        raise UserError(f"empty at {row.place}", file=options.path, key=column)
    return value


def _dim(options: TableOptions, place: str, value: Any, known: int | None) -> int:
    """The size of a vector, which all rows share."""
    vector = _vector(value)
    if not vector or len(vector) != (known or len(vector)):
        raise UserError(
            f"no vector of the first row's size at {place}", file=options.path, key=options.content,
            found=value if vector is None else f"{len(vector)} numbers", allowed=known,
        )  # fmt: skip
    return len(vector)


def _vector(value: Any) -> list[float] | None:
    """The numbers of a list, or of a list as JSON; None for anything else."""
    try:
        found = json.loads(value) if isinstance(value, str) else value
        return [float(number) for number in found]
    except (TypeError, ValueError):
        return None


def _split(options: TableOptions, row: Row, column: str) -> str:
    found = str(row.values[column]).strip().lower()
    if found not in SPLIT_NAMES:
        problem = f"unknown split at {row.place}"
        raise UserError(problem, file=options.path, key=column, found=row.values[column], allowed=SPLITS)
    return SPLIT_NAMES[found]


def _batches(options: TableOptions, read: _Read, rows: Iterator[Row]) -> Iterator[dict[str, Any]]:
    labels = {name: values for name, reader in read.labels.items() if (values := reader.values()) is not None}
    columns = {"id": read.ids, "split": read.splits, **labels}
    return in_batches(columns, options.modality, (_content(options, row) for row in rows))


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
        return (options.path.parent / str(value)).read_bytes()
    except OSError as error:
        problem = f"image cannot be read at {row.place}"
        raise UserError(problem, file=options.path, key=options.content, found=error) from None
