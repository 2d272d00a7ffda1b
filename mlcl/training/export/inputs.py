"""The inputs of a prediction, row by row: tables, lines of text, folders of images, splits of data sets.

Rows are read when they are asked for, so a file may be larger than the memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from mlcl.data import Split
from mlcl.data.format import Modality, plural
from mlcl.data.sources.image_folder import image_files
from mlcl.data.tables.files import Dialect, TableFile
from mlcl.data.tables.formats import FORMS, open_table
from mlcl.data.tables.notation import is_unicode
from mlcl.data.tables.rows import ImageFiles, Unreadable, read_contents
from mlcl.errors import UserError
from mlcl.training.input_reader import Content


class Item(NamedTuple):
    """One text, image or vector, its id, and its place as messages name it; or why it cannot be read."""

    id: str
    place: str
    content: Content | Unreadable


@dataclass(frozen=True)
class TableColumns:
    """The columns of a table's content and ids, and how its file is read; by default all is recognised."""

    content: tuple[str, ...] = ()
    id: str | None = None
    dialect: Dialect = field(default_factory=Dialect)


def read_items(path: Path, modality: Modality, columns: TableColumns | None = None) -> Iterator[Item]:
    """The rows of a file, or the images of a folder.

    A table needs the columns of `columns`, by default `text`, `image` (bytes, or the path of a file) or
    `vectors` (lists of numbers, in CSV as JSON). Ids stand in the column `id`; without one of that name a
    row's number, from 0 on, is its id. Raises UserError for an unknown form, and with its place for a record
    that cannot be read; a content that cannot be read is an item without one.
    """
    if path.is_dir():
        return _images(path, modality)
    if not path.is_file():
        raise UserError("no such file or folder", file=path)
    columns = columns or TableColumns()
    table = open_table(path, columns.dialect)
    if table.columns == ("text",) and modality != "text" and path.suffix.lower() == ".txt":
        raise UserError(f"this model reads {plural(modality)}", file=path, found="lines of text")
    return _items(table, modality, columns)


def split_items(split: Split) -> Iterator[Item]:
    """The rows of a data set's split."""
    read: dict[Modality, Callable[[], Iterable[Content]]] = {
        "text": split.texts,
        "image": split.images,
        "vectors": lambda: split.vectors().tolist(),
    }
    contents = read[split.info.modality]()
    for id, content in zip(split.ids, contents, strict=True):
        yield Item(id, f"id {id}", content)


def batches(items: Iterable[Item], size: int) -> Iterator[list[Item]]:
    """The rows in lists of `size`, the last one shorter."""
    rest = iter(items)
    while batch := list(islice(rest, size)):
        yield batch


def _items(table: TableFile, modality: Modality, columns: TableColumns) -> Iterator[Item]:
    content, id = columns.content or (modality,), columns.id or "id"
    for column in content:
        table.require(column, "text" if columns.content else column, [*table.columns, "or text COLUMN"])
    if columns.id or id in table.columns:
        table.require(id, "id")
    wanted = [*content, *([id] if id in table.columns else [])]
    files, number = ImageFiles(table.path.parent), 0
    for frame in table.chunks(wanted):
        found = read_contents(frame, modality, content, files)
        ids = frame[id] if id in table.columns else [None] * len(frame)
        for place, given, its in zip(frame.index, ids, found, strict=True):
            name = str(number if given is None else given)
            where = f"{table.unit} {place}"
            if not is_unicode(name):
                problem = f"no Unicode text at {where}"
                raise UserError(problem, file=table.path, key=id, found=repr(name))
            yield Item(name, f"{where} of {table.path}", its)
            number += 1


def _images(folder: Path, modality: Modality) -> Iterator[Item]:
    if modality != "image":
        raise UserError(
            f"this model reads {plural(modality)}", file=folder, found="a folder", allowed=[*FORMS]
        )
    images, others = image_files(folder)
    contents = dict.fromkeys(others, Unreadable("no image")) | {file: file for file in images}
    for file in sorted(contents):
        yield Item(file.relative_to(folder).as_posix(), str(file), contents[file])
