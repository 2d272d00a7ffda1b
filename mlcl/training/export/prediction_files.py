"""The files of `mlcl predict`: reads inputs as rows, and writes predictions as CSV, JSON lines or Parquet.

Both happen in batches, so a file may be larger than the memory.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any, NamedTuple, TextIO

import pyarrow as pa
import pyarrow.parquet as pq

from mlcl.data import Split
from mlcl.data.format import Modality, plural
from mlcl.data.sources.image_folder import image_files
from mlcl.data.tables.files import Dialect, TableFile
from mlcl.data.tables.formats import FORMS, open_table
from mlcl.data.tables.notation import is_unicode
from mlcl.data.tables.rows import ImageFiles, Unreadable, read_contents
from mlcl.errors import UserError
from mlcl.files import new_file
from mlcl.training.input_reader import Content

Columns = Mapping[str, Sequence[Any]]
Sink = Callable[[Columns], None]
"""A function that writes the columns of a batch; all batches have the same columns."""
OUTPUTS = (".csv", ".jsonl", ".parquet")


class Item(NamedTuple):
    """A row of the input.

    `place` says where the row stands, for messages. `content` is its text, image or vector, or an Unreadable
    with the reason why it cannot be read.
    """

    id: str
    place: str
    content: Content | Unreadable


@dataclass(frozen=True)
class TableColumns:
    """The columns and the format by which a table is read.

    `content` names the columns of texts, images or vectors, by default the column named like the modality.
    `id` names the column of ids, by default `id`; without such a column ids are row numbers. `dialect` is the
    encoding and format of a text file, by default detected.
    """

    content: tuple[str, ...] = ()
    id: str | None = None
    dialect: Dialect = field(default_factory=Dialect)


def read_items(path: Path, modality: Modality, columns: TableColumns | None = None) -> Iterator[Item]:
    """Yields the rows of a file, or the images of a folder.

    The content of a table is in the columns `text`, `image` (bytes, or the path of a file) or `vectors`
    (lists of numbers, in CSV as JSON), unless `columns` names others. Without a column of ids, row numbers
    from 0 on are the ids. A content that cannot be read is yielded as Unreadable. Raises UserError for a
    missing path, an unknown format or a record that cannot be parsed.
    """
    if path.is_dir():
        return _list_images(path, modality)
    if not path.is_file():
        raise UserError("no such file or folder", file=path)
    columns = columns or TableColumns()
    table = open_table(path, columns.dialect)
    if table.columns == ("text",) and modality != "text" and path.suffix.lower() == ".txt":
        raise UserError(f"this model reads {plural(modality)}", file=path, found="lines of text")
    return _read_rows(table, modality, columns)


def split_items(split: Split) -> Iterator[Item]:
    """Yields the rows of a data set's split."""
    readers: dict[Modality, Callable[[], Iterable[Content]]] = {
        "text": split.texts,
        "image": split.images,
        "vectors": lambda: split.vectors().tolist(),
    }
    contents = readers[split.info.modality]()
    for id, content in zip(split.ids, contents, strict=True):
        yield Item(id, f"id {id}", content)


def batches(items: Iterable[Item], size: int) -> Iterator[list[Item]]:
    """Yields lists of `size` items; the last list may be shorter."""
    iterator = iter(items)
    while batch := list(islice(iterator, size)):
        yield batch


def _read_rows(table: TableFile, modality: Modality, columns: TableColumns) -> Iterator[Item]:
    content, id = columns.content or (modality,), columns.id or "id"
    for column in content:
        table.require(column, "text" if columns.content else column, [*table.columns, "or text COLUMN"])
    if columns.id or id in table.columns:
        table.require(id, "id")
    names = [*content, *([id] if id in table.columns else [])]
    files, number = ImageFiles(table.path.parent), 0
    for frame in table.chunks(names):
        contents = read_contents(frame, modality, content, files)
        ids = frame[id] if id in table.columns else range(number, number + len(frame))
        for place, row_id, row_content in zip(frame.index, ids, contents, strict=True):
            name = "" if row_id is None or row_id != row_id else str(row_id)
            location = f"{table.unit} {place}"
            if not is_unicode(name):
                problem = f"not Unicode text at {location}"
                raise UserError(problem, file=table.path, key=id, found=repr(name))
            yield Item(name, f"{location} of {table.path}", row_content)
            number += 1


def _list_images(folder: Path, modality: Modality) -> Iterator[Item]:
    if modality != "image":
        problem = f"this model reads {plural(modality)}"
        raise UserError(problem, file=folder, found="a folder", allowed=[*FORMS])
    images, other_files = image_files(folder)
    contents = dict.fromkeys(other_files, Unreadable("no image")) | {file: file for file in images}
    for file in sorted(contents):
        yield Item(file.relative_to(folder).as_posix(), str(file), contents[file])


def check_form(path: Path) -> None:
    """Raises UserError if the suffix of `path` is not in `OUTPUTS`."""
    if path.suffix.lower() not in OUTPUTS:
        raise UserError("not a file format that can be written", key="--out", found=path, allowed=OUTPUTS)


def check_place(path: Path, source: Path) -> None:
    """Raises UserError if `path` is a folder, is a file of the input `source`, or cannot be written."""
    if path.is_dir():
        raise UserError("is a folder", key="--out", found=path)
    inside = path.resolve().is_relative_to(source.resolve())
    if path.exists() and source.exists() and (inside or path.samefile(source)):
        raise UserError("would replace the input", key="--out", found=path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        TemporaryFile(dir=path.parent).close()
    except OSError as error:
        raise UserError("cannot be written", key="--out", found=f"{path} ({error})") from None


@contextmanager
def sink(path: Path) -> Iterator[Sink]:
    """Yields a function that writes to a new file, which becomes `path` if the context ends without error."""
    check_form(path)
    suffix = path.suffix.lower()
    with new_file(path) as work:
        if suffix == ".parquet":
            with _parquet_sink(work) as write:
                yield write
        else:
            with work.open("w", encoding="utf-8", newline="") as file:
                yield csv_sink(file) if suffix == ".csv" else _json_sink(file)


def csv_sink(file: TextIO) -> Sink:
    """Returns a sink that writes CSV with a header line into an open file; lists are written as JSON."""
    writer = csv.writer(file, lineterminator="\n")
    headed = False

    def write(columns: Columns) -> None:
        nonlocal headed
        if not headed:
            writer.writerow(columns)
            headed = True
        for row in zip(*columns.values(), strict=True):
            writer.writerow(
                [json.dumps(value, ensure_ascii=False) if isinstance(value, list) else value for value in row]
            )

    return write


def _json_sink(file: TextIO) -> Sink:
    def write(columns: Columns) -> None:
        for row in zip(*columns.values(), strict=True):
            file.write(json.dumps(dict(zip(columns, row, strict=True)), ensure_ascii=False) + "\n")

    return write


@contextmanager
def _parquet_sink(path: Path) -> Iterator[Sink]:
    writer: Any = None

    def write(columns: Columns) -> None:
        nonlocal writer
        examples = {name: next(filter(None, values), values[0]) for name, values in columns.items()}
        arrays = {
            name: pa.array(values, _arrow_type(name, examples[name])) for name, values in columns.items()
        }
        batch = pa.table(arrays)
        writer = writer or pq.ParquetWriter(path, batch.schema, compression="zstd")
        writer.write_table(batch)

    try:
        yield write
    finally:
        if writer is not None:
            writer.close()


def _arrow_type(name: str, value: Any) -> Any:
    """Returns a column's Arrow type: numbers or strings by its name, in lists if `value` is a list."""
    if isinstance(value, list):
        return pa.list_(_arrow_type(name, value[0] if value else None))
    return pa.float64() if name.startswith("probabilit") else pa.string()
