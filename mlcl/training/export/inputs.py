"""The inputs of a prediction, row by row: tables, lines of text, folders of images, splits of data sets.

Rows are read when they are asked for, so a file may be larger than the memory.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from mlcl.data import Split
from mlcl.data.format import Modality, plural
from mlcl.data.sources.image_folder import SUFFIXES
from mlcl.data.table_file import FORMS, TableFile, open_table, text_lines
from mlcl.errors import UserError
from mlcl.training.input_reader import Content, is_unicode


class Item(NamedTuple):
    """One text or image, its id, and its place as messages name it."""

    id: str
    place: str
    content: Content


def read_items(
    path: Path, modality: Modality, content: str | None = None, id: str | None = None
) -> Iterator[Item]:
    """The rows of a file, or the images of a folder.

    A table needs the column `content`, by default `text`, `image` (bytes, or the path of a file, from the
    table's folder on) or `vectors` (lists of numbers, in CSV as JSON). Ids stand in the column `id`; without
    one of that name a row's number, from 0 on, is its id. A missing text is "". Raises UserError for an
    unknown form, and with its place for a row that cannot be read.
    """
    if path.is_dir():
        return _images(path, modality)
    if not path.is_file():
        raise UserError("no such file or folder", file=path)
    if path.suffix.lower() == ".txt":
        return _lines(path, modality)
    return _items(open_table(path), modality, content or modality, id)


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


def _items(table: TableFile, modality: Modality, column: str, id: str | None) -> Iterator[Item]:
    table.require(column, column, [*table.columns, "with --text COLUMN"] if column == "text" else None)
    if id or "id" in table.columns:
        table.require(id or "id", id or "id")
    for number, row in enumerate(table.rows({column, id or "id"})):
        content = row.values.get(column)
        if modality == "image":
            content = _image(content, row.file.parent)
        elif modality == "vectors" and isinstance(content, str):
            content = _numbers(content)
        elif modality == "text" and (content is None or content != content):  # None, or NaN of a Parquet file
            content = ""
        if not isinstance(content, list if modality == "vectors" else str | bytes | Path):
            raise row.error(f"no {modality}", column, content)
        given = row.values.get(id or "id")
        name = str(number if given is None else given)
        if not is_unicode(name):
            raise row.error("no Unicode text", id or "id", repr(name))
        yield Item(name, f"{row.place} of {row.file}", content)


def _image(value: Any, folder: Path) -> Content | None:
    if isinstance(value, Mapping):
        # The usual way to keep an image in Parquet: {"bytes": ..., "path": ...}.
        value = value.get("bytes") or value.get("path")
    return folder / value if isinstance(value, str) and value else value


def _numbers(text: str) -> Content | None:
    try:
        found: Content = json.loads(text)
    except ValueError:
        return None
    return found


def _lines(path: Path, modality: Modality) -> Iterator[Item]:
    if modality != "text":
        raise UserError(f"this model reads {plural(modality)}", file=path, found="lines of text")
    for number, line in enumerate(text_lines(path)):
        yield Item(str(number), f"line {number + 1} of {path}", line.rstrip("\r\n"))


def _images(folder: Path, modality: Modality) -> Iterator[Item]:
    if modality != "image":
        raise UserError(
            f"this model reads {plural(modality)}", file=folder, found="a folder", allowed=[*FORMS, ".txt"]
        )
    for file in sorted(folder.rglob("*")):
        if file.suffix.lower() in SUFFIXES and file.is_file():
            yield Item(file.relative_to(folder).as_posix(), str(file), file)
