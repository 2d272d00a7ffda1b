"""The inputs of a prediction, row by row: tables, lines of text, folders of images, splits of data sets.

Rows are read when they are asked for, so a file may be larger than the memory.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from mlcl.data import Split
from mlcl.data.format import Modality, plural
from mlcl.data.sources.common.table import LONGEST_FIELD
from mlcl.data.sources.image_folder import SUFFIXES
from mlcl.errors import UserError
from mlcl.training.input_reader import Content, is_unicode

ROWS_AT_ONCE = 256
FORMS = (".csv", ".tsv", ".jsonl", ".parquet", ".txt")


class Item(NamedTuple):
    """One text or image, its id, and its place as messages name it."""

    id: str
    place: str
    content: Content


def read_items(path: Path, modality: Modality) -> Iterator[Item]:
    """The rows of a file, or the images of a folder.

    A table needs a column `text`, `image` (bytes, or the path of a file, from the table's folder on) or
    `vectors` (lists of numbers, in CSV as JSON), and may have an `id`; else a row's number, from 0 on, is its
    id. Raises UserError for an unknown form, and with its place for a row that cannot be read.
    """
    if path.is_dir():
        return _images(path, modality)
    if not path.is_file():
        raise UserError("no such file or folder", file=path)
    suffix = path.suffix.lower()
    if suffix not in FORMS:
        raise UserError(
            "not a form that can be read", file=path, found=suffix or "no suffix",
            allowed=[*FORMS, "a folder of images", "a data set"],
        )  # fmt: skip
    if suffix == ".txt":
        return _lines(path, modality)
    rows = {".jsonl": _json_rows, ".parquet": _parquet_rows}.get(suffix, _csv_rows)(path, modality)
    return _items(path, modality, rows)


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


def _items(path: Path, modality: Modality, rows: Iterable[tuple[str, Mapping[str, Any]]]) -> Iterator[Item]:
    for number, (place, values) in enumerate(rows):
        content = values[modality]
        if modality == "image":
            content = _image(content, path.parent)
        elif modality == "vectors" and isinstance(content, str):
            content = _numbers(content)
        if not isinstance(content, list if modality == "vectors" else str | bytes | Path):
            raise UserError(f"no {modality} at {place}", file=path, key=modality, found=content)
        id = values.get("id")
        id = str(number if id is None else id)
        if not is_unicode(id):
            raise UserError(f"no Unicode text at {place}", file=path, key="id", found=repr(id))
        yield Item(id, f"{place} of {path}", content)


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


def _csv_rows(path: Path, modality: Modality) -> Iterator[tuple[str, Mapping[str, Any]]]:
    csv.field_size_limit(LONGEST_FIELD)
    delimiter = "\t" if path.suffix.lower() == ".tsv" else ","
    with _reading(path), path.open(encoding="utf-8-sig", newline="") as file:
        reader = csv.reader(file, delimiter=delimiter, strict=True)
        header = next(reader, None)
        if header is None:
            return
        _check_columns(path, "line 1", header, modality)
        for fields in reader:
            place = f"line {reader.line_num}"  # its last, where a text has several
            if fields and len(fields) != len(header):
                raise UserError(
                    f"wrong number of fields at {place}", file=path, found=len(fields), allowed=len(header)
                )
            if fields:
                yield place, dict(zip(header, fields, strict=True))


def _check_columns(path: Path, place: str, names: list[str], modality: Modality) -> None:
    if modality not in names:
        raise UserError(f"no such column in {place}", file=path, key=modality, found=names, allowed=modality)
    for name in (modality, "id"):
        if names.count(name) > 1:
            raise UserError(f"this column occurs twice in {place}", file=path, key=name, found=names)


def _json_rows(path: Path, modality: Modality) -> Iterator[tuple[str, Mapping[str, Any]]]:
    with _reading(path), path.open(encoding="utf-8-sig") as file:
        for number, line in enumerate(file, start=1):
            if line.strip():
                place = f"line {number}"
                values = _json_object(path, place, line)
                _check_columns(path, place, list(values), modality)
                yield place, values


def _json_object(path: Path, place: str, line: str) -> Mapping[str, Any]:
    try:
        values = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise UserError(f"not valid JSON at {place}", file=path, found=error) from None
    if not isinstance(values, dict):
        raise UserError(f"not an object at {place}", file=path, found=type(values).__name__)
    return values


def _parquet_rows(path: Path, modality: Modality) -> Iterator[tuple[str, Mapping[str, Any]]]:
    with _reading(path), pq.ParquetFile(path, memory_map=True) as file:
        _check_columns(path, "its schema", file.schema_arrow.names, modality)
        columns = [name for name in file.schema_arrow.names if name in (modality, "id")]
        number = 0
        for batch in file.iter_batches(ROWS_AT_ONCE, columns=columns):
            for values in batch.to_pylist():
                yield f"row {number}", values
                number += 1


def _lines(path: Path, modality: Modality) -> Iterator[Item]:
    if modality != "text":
        raise UserError(f"this model reads {plural(modality)}", file=path, found="lines of text")
    with _reading(path), path.open(encoding="utf-8-sig") as file:
        for number, line in enumerate(file):
            yield Item(str(number), f"line {number + 1} of {path}", line.rstrip("\r\n"))


def _images(folder: Path, modality: Modality) -> Iterator[Item]:
    if modality != "image":
        raise UserError(f"this model reads {plural(modality)}", file=folder, found="a folder", allowed=FORMS)
    for file in sorted(folder.rglob("*")):
        if file.suffix.lower() in SUFFIXES and file.is_file():
            yield Item(file.relative_to(folder).as_posix(), str(file), file)


@contextmanager
def _reading(path: Path) -> Iterator[None]:
    try:
        yield
    except (OSError, ValueError, csv.Error, pa.ArrowException) as error:
        raise UserError("cannot be read", file=path, found=error) from None
