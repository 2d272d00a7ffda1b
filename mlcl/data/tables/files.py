"""Files of rows as pandas frames, some rows at a time, and how a text file is opened.

The index of a frame is each row's line in its file, from 1 on; in Parquet and JSON arrays its row, from 0 on.
"""

from __future__ import annotations

import csv
import gzip
import io
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import IO, Any, cast

import pandas as pd

from mlcl.errors import UserError, did_you_mean

ENCODING = "utf-8-sig"
"""UTF-8 with or without a byte order mark; CSV may have that of UTF-16 instead."""
ROWS_AT_ONCE = 256
ROWS_TRIED = 1_000
"""Rows from which the sign between the fields, and the keys of JSON objects, are recognised."""
Frame = pd.DataFrame
Records = Iterator[tuple[int, Any]]
"""The place and the fields, or the keys and values, of each row."""


@dataclass(frozen=True)
class Dialect:
    """How a text file is read; what is None is recognised. `header` says whether CSV has a header line."""

    encoding: str = ENCODING
    delimiter: str | None = None
    header: bool | None = None


@dataclass(frozen=True)
class Table:
    """A file of rows. `names` are the classes that a Parquet file's metadata gives for numbers, by column."""

    path: Path
    columns: tuple[str, ...]
    read: Callable[[Collection[str]], Iterator[Frame]]
    unit: str = "line"
    names: Mapping[str, Sequence[str]] = field(default_factory=dict)

    def chunks(self, columns: Iterable[str] | None = None) -> Iterator[Frame]:
        """The rows in file order, at most `ROWS_AT_ONCE` a frame, with these columns (default: all)."""
        return self.read(list(dict.fromkeys(self.columns if columns is None else columns)))

    def frame(self, columns: Iterable[str] | None = None, rows: int | None = None) -> Frame:
        """The first `rows` rows, or all of them, as one frame."""
        wanted = list(dict.fromkeys(self.columns if columns is None else columns))
        most = None if rows is None else -(-rows // ROWS_AT_ONCE)
        found = list(islice(self.chunks(wanted), most))
        return pd.concat(found) if found else Frame(columns=wanted, dtype=object)

    def require(self, column: str, key: str, allowed: object = None) -> None:
        """Raise UserError for a column that is not there once; `key` names it in the user's words."""
        if (count := self.columns.count(column)) != 1:
            hint = f"no such column{did_you_mean(column, self.columns)}"
            problem, allowed = "this column occurs twice" if count else hint, allowed or list(self.columns)
            raise UserError(problem, file=self.path, key=key, found=column, allowed=allowed)


def suffix_of(path: Path) -> str:
    """The suffix in small letters, without `.gz`."""
    name = path.name.lower()
    return Path(name.removesuffix(".gz")).suffix


def frames(records: Records, wanted: Mapping[str, int | str]) -> Iterator[Frame]:
    """Frames of records; `wanted` maps a column to its position, or key, in a record."""
    while rows := list(islice(records, ROWS_AT_ONCE)):
        index = pd.Index([place for place, _ in rows])
        columns = {
            name: [row.get(key) if isinstance(row, dict) else row[key] for _, row in rows]
            for name, key in wanted.items()
        }
        yield Frame({name: pd.Series(its, index, dtype=object) for name, its in columns.items()}, index=index)


def open_bytes(path: Path) -> IO[bytes]:
    """The bytes of a file, decompressed where its suffix is `.gz`."""
    return cast(IO[bytes], gzip.open(path)) if path.suffix.lower() == ".gz" else path.open("rb")


def open_text(path: Path, encoding: str, newline: str | None = None) -> IO[str]:
    """The text of a file, decompressed where its suffix is `.gz`."""
    return io.TextIOWrapper(open_bytes(path), encoding=encoding, newline=newline)


def text_lines(path: Path, encoding: str = ENCODING) -> Iterator[tuple[int, str]]:
    """The lines of a text file with their numbers. Raises UserError with the line for what is no text."""
    line = [1]
    with decoding(path, line, encoding), open_text(path, encoding) as file:
        for line[0], text in enumerate(file, 1):
            yield line[0], text


@contextmanager
def decoding(path: Path, line: list[int], encoding: str) -> Iterator[None]:
    """Errors of a text file as UserError; `line` holds the number of the line that is read."""
    try:
        yield
    except UnicodeError as error:
        raise UserError(
            f"no text in {encoding} at or after line {line[0]}", file=path, key="encoding", found=error,
            allowed="the encoding that it has, such as encoding cp1252",
        ) from None  # fmt: skip
    except LookupError:
        raise UserError("unknown encoding", file=path, key="encoding", found=encoding) from None
    except csv.Error as error:
        raise UserError(f"no CSV at or after line {line[0]}", file=path, found=error) from None
    except (OSError, EOFError) as error:
        raise UserError("cannot be read", file=path, found=error) from None
