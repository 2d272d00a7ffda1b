"""The formats of files with rows: CSV, JSON, Parquet and lines of text, also as `.gz`, opened by suffix."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from mlcl.data.tables.csv_file import csv_table
from mlcl.data.tables.files import (
    ROWS_AT_ONCE,
    ROWS_TRIED,
    Dialect,
    Frame,
    Records,
    Table,
    frames,
    open_bytes,
    suffix_of,
    text_lines,
)
from mlcl.errors import UserError

FASTTEXT = "__label__"


def open_table(path: Path, dialect: Dialect | None = None) -> Table:
    """The table in a file, by its suffix. Raises UserError for a form that is not in `FORMS`."""
    if not path.is_file():
        raise UserError("no such file", file=path)
    suffix, dialect = suffix_of(path), dialect or Dialect()
    if suffix not in FORMS and _begins(path, FASTTEXT):
        return lines_table(path, dialect)
    if suffix not in FORMS:
        allowed = [*FORMS, "each also with .gz, but for .parquet"]
        raise UserError(
            "not a form that can be read", file=path, found=suffix or "no suffix", allowed=allowed
        )
    return FORMS[suffix](path, dialect)


def _begins(path: Path, start: str) -> bool:
    with open_bytes(path) as file:
        return file.read(len(start)) == start.encode()


def json_table(path: Path, dialect: Dialect) -> Table:
    """A file with a JSON object on each line, or one array of objects; its columns are the keys of all.

    Raises UserError with the line for what is no JSON object.
    """
    lines = text_lines(path, dialect.encoding)
    array = next((text.lstrip()[0] for _, text in lines if text.strip()), "") == "["
    objects = partial(_array if array else _objects, path, dialect.encoding)
    columns = dict.fromkeys(key for _, row in objects() for key in row)
    return Table(
        path,
        tuple(columns),
        lambda wanted: frames(objects(), {name: name for name in wanted}),
        "row" if array else "line",
    )


def _objects(path: Path, encoding: str) -> Iterator[tuple[int, Any]]:
    for line, text in text_lines(path, encoding):
        if text.strip():
            yield line, _object(path, f"line {line}", _json(path, f"line {line}", text))


def _array(path: Path, encoding: str) -> Iterator[tuple[int, Any]]:
    found = _json(path, "line 1 and after", "".join(text for _, text in text_lines(path, encoding)))
    for row, its in enumerate(found):
        yield row, _object(path, f"row {row}", its)


def _json(path: Path, place: str, text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise UserError(f"not valid JSON at {place}", file=path, found=error) from None


def _object(path: Path, place: str, value: Any) -> Any:
    if not isinstance(value, dict):
        raise UserError(f"not an object at {place}", file=path, found=type(value).__name__)
    return value


def lines_table(path: Path, dialect: Dialect) -> Table:
    """A text a line, column `text`; where the first begins with `__label__`, with labels as fastText.

    A file with as many tabs in each line is read as CSV.
    """
    first = [text for _, text in islice(text_lines(path, dialect.encoding), ROWS_TRIED)]
    tabs = {text.count("\t") for text in first}
    if len(first) > 1 and len(tabs) == 1 and tabs != {0}:
        return csv_table(path, replace(dialect, delimiter="\t"))
    tagged = "".join(first[:1]).startswith(FASTTEXT)

    def rows() -> Records:
        for line, text in text_lines(path, dialect.encoding):
            words = text.rstrip("\r\n").split(" ") if tagged else []
            labels = [word.removeprefix(FASTTEXT) for word in words if word.startswith(FASTTEXT)]
            rest = [word for word in words if not word.startswith(FASTTEXT)]
            yield line, (" ".join(rest) if tagged else text.rstrip("\r\n"), labels)

    columns = ("text", "labels") if tagged else ("text",)
    return Table(path, columns, lambda wanted: frames(rows(), {c: columns.index(c) for c in wanted}))


def parquet_table(path: Path, _dialect: Dialect) -> Table:
    """A Parquet file. Raises UserError for one that is not whole."""
    with _whole(path):
        schema = pq.read_schema(path)

    def read(wanted: Collection[str]) -> Iterator[Frame]:
        first = 0
        with _whole(path), pq.ParquetFile(path, memory_map=True) as file:
            for batch in file.iter_batches(ROWS_AT_ONCE, columns=list(wanted)):
                index = pd.RangeIndex(first, first + len(batch))
                columns = {name: batch.column(name).to_pylist() for name in wanted}
                yield Frame(
                    {name: pd.Series(its, index, dtype=object) for name, its in columns.items()}, index=index
                )
                first += len(batch)

    return Table(path, tuple(schema.names), read, "row", _class_names(schema.metadata or {}))


def _class_names(metadata: Mapping[bytes, bytes]) -> dict[str, Sequence[str]]:
    """The names of `ClassLabel` columns in the metadata that Hugging Face's datasets write."""
    try:
        features = json.loads(metadata[b"huggingface"])["info"]["features"]
        inner = {name: its.get("feature", its) for name, its in features.items() if isinstance(its, dict)}
        return {
            n: tuple(map(str, f["names"])) for n, f in inner.items() if isinstance(f, dict) and "names" in f
        }
    except (KeyError, ValueError, TypeError, AttributeError):
        return {}


@contextmanager
def _whole(path: Path) -> Iterator[None]:
    try:
        yield
    except (pa.ArrowException, OSError) as error:
        raise UserError("not a whole Parquet file; was it truncated?", file=path, found=error) from None


FORMS: dict[str, Callable[[Path, Dialect], Table]] = {
    ".csv": csv_table,
    ".tsv": csv_table,
    ".jsonl": json_table,
    ".ndjson": json_table,
    ".json": json_table,
    ".parquet": parquet_table,
    ".txt": lines_table,
}
"""How a file is read, by its suffix."""
