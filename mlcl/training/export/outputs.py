"""Predictions as a file, batch by batch: CSV, JSON lines or Parquet."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any, TextIO

import pyarrow as pa
import pyarrow.parquet as pq

from mlcl.errors import UserError
from mlcl.files import new_file

Columns = Mapping[str, Sequence[Any]]
Sink = Callable[[Columns], None]
"""Takes the columns of one batch; all batches have the same."""
FORMS = (".csv", ".jsonl", ".parquet")


def check_form(path: Path) -> None:
    """Raises UserError for a suffix of no known form."""
    if path.suffix.lower() not in FORMS:
        raise UserError("not a form that can be written", key="--out", found=path, allowed=FORMS)


def check_place(path: Path, source: Path) -> None:
    """Raises UserError for a folder, for `source` or a file in it, and where no file can be written."""
    if path.is_dir():
        raise UserError("is a folder", key="--out", found=path)
    inside = path.resolve().is_relative_to(source.resolve())
    if path.exists() and source.exists() and (inside or path.samefile(source)):
        raise UserError("would replace what is read", key="--out", found=path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with TemporaryFile(dir=path.parent):
            pass
    except OSError as error:
        raise UserError("cannot be written", key="--out", found=f"{path} ({error})") from None


@contextmanager
def sink(path: Path) -> Iterator[Sink]:
    """A sink into a file of the suffix's form, which gets its name when the block ends without error."""
    check_form(path)
    suffix = path.suffix.lower()
    with new_file(path) as work:
        if suffix == ".parquet":
            with _parquet(work) as write:
                yield write
        else:
            with work.open("w", encoding="utf-8", newline="") as file:
                yield csv_sink(file) if suffix == ".csv" else _json_sink(file)


def csv_sink(file: TextIO) -> Sink:
    """A sink into an open file as CSV with a header line; a list is one field, as JSON."""
    writer = csv.writer(file, lineterminator="\n")
    headed = False

    def write(columns: Columns) -> None:
        nonlocal headed
        if not headed:
            writer.writerow(columns)
            headed = True
        writer.writerows([_field(value) for value in row] for row in zip(*columns.values(), strict=True))

    return write


def _field(value: Any) -> Any:
    return json.dumps(value, ensure_ascii=False) if isinstance(value, list) else value


def _json_sink(file: TextIO) -> Sink:
    def write(columns: Columns) -> None:
        for row in zip(*columns.values(), strict=True):
            file.write(json.dumps(dict(zip(columns, row, strict=True)), ensure_ascii=False) + "\n")

    return write


@contextmanager
def _parquet(path: Path) -> Iterator[Sink]:
    writer: Any = None

    def write(columns: Columns) -> None:
        nonlocal writer
        typed = {name: pa.array(values, _type(name, values[0])) for name, values in columns.items()}
        batch = pa.table(typed)
        writer = writer or pq.ParquetWriter(path, batch.schema, compression="zstd")
        writer.write_table(batch)

    try:
        yield write
    finally:
        if writer is not None:
            writer.close()


def _type(name: str, value: Any) -> Any:
    """The column's type by its name: a batch may consist of empty lists."""
    if isinstance(value, list):
        return pa.list_(_type(name, value[0] if value else None))
    return pa.float64() if name.startswith("probabilit") else pa.string()
