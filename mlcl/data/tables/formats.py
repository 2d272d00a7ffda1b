"""Opens files of rows by their suffix: CSV, JSON, Parquet and lines of text, also as `.gz`."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from mlcl.data.tables import files
from mlcl.data.tables.notation import is_unicode
from mlcl.errors import UserError

FASTTEXT = "__label__"


def open_table(path: Path, dialect: files.Dialect) -> files.TableFile:
    """Opens a table by its suffix, or as fastText's format if it begins with `__label__`.

    Raises UserError for a file that is missing and for a format that is not in `FORMS`.
    """
    if not path.is_file():
        raise UserError("no such file", file=path)
    suffix = files.suffix_of(path)
    if suffix not in FORMS:
        with files.open_bytes(path) as file:
            if file.read(len(FASTTEXT)) != FASTTEXT.encode():
                allowed = [*FORMS, "each also with .gz, but for .parquet"]
                text = suffix or "no suffix"
                raise UserError("not a file format that can be read", file=path, found=text, allowed=allowed)
    return FORMS.get(suffix, lines_table)(path, dialect)


def json_table(path: Path, dialect: files.Dialect) -> files.TableFile:
    """Opens a file with an object a line, or an array of objects, whose keys are the columns."""
    lines = files.text_lines(path, dialect.encoding)
    unit = "row" if next((text.lstrip()[0] for _, text in lines if text.strip()), "") == "[" else "line"

    def objects() -> files.Records:
        lines = files.text_lines(path, dialect.encoding)
        values: files.Records
        if unit == "row":
            values = enumerate(_parse_json(path, "line 1 and after", "".join(text for _, text in lines)))
        else:
            values = ((line, _parse_json(path, f"line {line}", text)) for line, text in lines if text.strip())
        for number, value in values:
            if not isinstance(value, dict):
                problem = f"not an object at {unit} {number}"
                raise UserError(problem, file=path, found=type(value).__name__)
            yield number, value

    key_sets = dict.fromkeys(tuple(row) for _, row in objects())
    columns = tuple(dict.fromkeys(key for key_set in key_sets for key in key_set))
    if invalid_keys := [key for key in columns if not is_unicode(key)]:
        raise UserError(
            "a key is not Unicode text: half of a surrogate pair", file=path, found=ascii(invalid_keys[0])
        )
    _check_spellings(path, columns, key_sets)
    return files.TableFile(
        path, columns, lambda names: files.frames(objects(), {name: name for name in names}), unit
    )


def _check_spellings(path: Path, columns: Sequence[str], key_sets: Collection[Sequence[str]]) -> None:
    """Raises UserError for keys that differ only in case or blanks, unless some object has both.

    `columns` are the keys of all objects, and `key_sets` those of each object.
    """
    first_spelling: dict[str, str] = {}
    for key in columns:
        other = first_spelling.setdefault(" ".join(key.casefold().split()), key)
        if other != key and not any({key, other} <= set(key_set) for key_set in key_sets):
            raise UserError("one key in two spellings", file=path, found=f"{other!r} and {key!r}")


def _parse_json(path: Path, place: str, text: str) -> Any:
    try:
        return json.loads(text, object_pairs_hook=_build_object)
    except (ValueError, RecursionError) as error:
        allowed = "an object a line, or one array of objects"
        raise UserError(f"not valid JSON at {place}", file=path, found=error, allowed=allowed) from None


def _build_object(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    """Builds a JSON object. Raises ValueError for a repeated key, of which json would keep the last value."""
    mapping = dict(pairs)
    if len(mapping) < len(pairs):
        repeated_key = next(key for key, count in Counter(key for key, _ in pairs).items() if count > 1)
        raise ValueError(f"the key {repeated_key!r} twice in an object")
    return mapping


def lines_table(path: Path, dialect: files.Dialect) -> files.TableFile:
    """Opens a file with one text per line, the column `text`; fastText's format also gives `labels`.

    A file whose first lines all have the same number of tabs, or whose delimiter is given, is read as CSV.
    """
    if dialect.delimiter is not None:
        return files.csv_table(path, dialect)
    first_lines = [text for _, text in islice(files.text_lines(path, dialect.encoding), files.ROWS_TRIED)]
    tab_counts = {text.count("\t") for text in first_lines}
    is_fasttext = "".join(first_lines[:1]).startswith(FASTTEXT)
    if not is_fasttext and len(first_lines) > 1 and len(tab_counts) == 1 and tab_counts != {0}:
        return files.csv_table(path, replace(dialect, delimiter="\t"))

    def rows() -> files.Records:
        for line, text in files.text_lines(path, dialect.encoding):
            words = re.split("[ \t]" if is_fasttext else " ", text.rstrip("\r\n"))
            tags = [word for word in words if is_fasttext and word.startswith(FASTTEXT)]
            rest = " ".join(word for word in words if word not in tags)
            if invalid_tag := next((tag for tag in tags if tag[-1] in ",;" or tag.count(FASTTEXT) > 1), None):
                problem = f"labels at line {line} are not divided by blanks"
                raise UserError(problem, file=path, found=invalid_tag, allowed=f"{FASTTEXT}a {FASTTEXT}b")
            yield line, (rest, [tag.removeprefix(FASTTEXT) for tag in tags])

    columns = ("text", "labels") if is_fasttext else ("text",)
    return files.TableFile(
        path, columns, lambda names: files.frames(rows(), {c: columns.index(c) for c in names})
    )


def parquet_table(path: Path, _dialect: files.Dialect) -> files.TableFile:
    """Opens a Parquet file. Raises UserError if it is damaged."""
    with _reading_parquet(path):
        schema = pq.read_schema(path)

    def read(names: Collection[str]) -> Iterator[files.Frame]:
        start = 0
        with _reading_parquet(path), pq.ParquetFile(path, memory_map=True) as file:
            for batch in file.iter_batches(files.ROWS_AT_ONCE, columns=list(names)):
                columns = {name: _read_values(path, batch, name) for name in names}
                yield files.object_frame(columns, pd.RangeIndex(start, start + len(batch)))
                start += len(batch)

    return files.TableFile(path, tuple(schema.names), read, "row", _class_names(schema.metadata or {}))


def _read_values(path: Path, batch: pa.RecordBatch, name: str) -> list[Any]:
    """Returns the values of the first column with this name, with pandas periods as text."""
    place = batch.schema.names.index(name)
    try:
        values = list(_shorten_floats(batch.column(place)).to_pylist())
        freq = _period_frequency(batch.schema.field(place))
        if freq is None:
            return values
        return [None if value is None else str(pd.Period(ordinal=value, freq=freq)) for value in values]
    except OverflowError as error:
        raise UserError("a value that Python cannot represent", file=path, key=name, found=error) from None


def _shorten_floats(column: pa.Array) -> pa.Array:
    """Returns float32 numbers, or lists of float32 shares, as doubles with the fewest digits, such as 0.7.

    Returns any other column as it is.
    """
    float32, kind = pa.float32(), column.type
    if kind == float32:
        return column.cast(pa.string()).cast(pa.float64())
    if pa.types.is_nested(kind) and getattr(kind, "value_type", None) == float32:
        ends = pc.min_max(column.flatten()).as_py().values()
        if all(end is not None and 0 <= end <= 1 for end in ends):  # for long vectors it would take seconds
            return column.cast(pa.list_(pa.string())).cast(pa.list_(pa.float64()))
    return column


def _period_frequency(field: pa.Field) -> str | None:
    """Returns the frequency of a column of pandas' periods, which are integers in Parquet; else None."""
    metadata = field.metadata or {}
    if metadata.get(b"ARROW:extension:name") == b"pandas.period":
        return str(json.loads(metadata[b"ARROW:extension:metadata"])["freq"])
    return getattr(field.type, "freq", None)  # once pandas has registered its type with Arrow


def _class_names(metadata: Mapping[bytes, bytes]) -> dict[str, Sequence[str]]:
    """Returns the names of `ClassLabel` columns in the metadata that Hugging Face's datasets write."""
    try:
        features = json.loads(metadata[b"huggingface"])["info"]["features"]
        # A list of features is `{"feature": ...}`; older versions write `[...]`.
        items = {
            name: spec[0] if isinstance(spec, list) and spec else spec for name, spec in features.items()
        }
        specs = {name: spec.get("feature", spec) for name, spec in items.items() if isinstance(spec, dict)}
        return {
            n: tuple(map(str, f["names"])) for n, f in specs.items() if isinstance(f, dict) and "names" in f
        }
    except (KeyError, ValueError, TypeError, AttributeError):
        return {}


@contextmanager
def _reading_parquet(path: Path) -> Iterator[None]:
    try:
        yield
    except (pa.ArrowException, OSError) as error:
        raise UserError("not a whole Parquet file; was it truncated?", file=path, found=error) from None


FORMS: dict[str, Callable[[Path, files.Dialect], files.TableFile]] = {
    ".csv": files.csv_table,
    ".tsv": files.csv_table,
    ".jsonl": json_table,
    ".ndjson": json_table,
    ".json": json_table,
    ".parquet": parquet_table,
    ".txt": lines_table,
}
"""Maps a suffix to the function that opens such a file."""
