"""The rows of one or several tables: whole columns, line numbers for messages, and the contents."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import pandas as pd

from mlcl.data.format import Modality
from mlcl.data.tables.files import Frame, TableFile
from mlcl.data.tables.notation import MISSING, is_unicode, items_of
from mlcl.errors import UserError

Content = str | bytes | Path | list[float]
EMPTY = "the text is empty"
IMAGE = re.compile(r"\.(png|jpe?g|jfif|webp|bmp|gif|tiff?)$", re.IGNORECASE)
LISTED = re.compile(r"\s*\[\s*['\"].*['\"]\s*,?\s*\]\s*$", re.DOTALL)
"""Matches a text that is a list of quoted words, such as `['one', 'two']`."""


@dataclass(frozen=True)
class Unreadable:
    """The reason why the content of a row cannot be read, and the value that was found."""

    problem: str
    found: str | None = None

    def __str__(self) -> str:
        return self.problem if self.found is None else f"{self.problem}: {self.found}"


@dataclass(frozen=True)
class TableRows:
    """Rows of one or several tables, numbered from 0; `keys` has each row's table index and line (or row)."""

    frame: Frame
    tables: Sequence[TableFile]
    keys: Sequence[tuple[int, int]]

    @classmethod
    def of(cls, tables: Sequence[TableFile], columns: Collection[str]) -> TableRows:
        """Reads these columns of all rows of the tables."""
        frame = pd.concat([table.frame(columns) for table in tables], keys=range(len(tables)))
        return cls(frame.reset_index(drop=True), tables, frame.index.to_list())

    def __len__(self) -> int:
        return len(self.keys)

    def take(self, rows: list[int]) -> TableRows:
        """Returns only the given rows, numbered from 0 again."""
        return TableRows(
            self.frame.iloc[rows].reset_index(drop=True), self.tables, [self.keys[r] for r in rows]
        )

    def file(self, row: int) -> Path:
        """Returns the path of the file that a row is in."""
        return self.tables[self.keys[row][0]].path

    def place(self, row: int) -> str:
        """Describes where a row is, for messages: "line 7", or with several files "line 7 of more.csv"."""
        table, number = self.keys[row]
        more = f" of {self.tables[table].path.name}" if len(self.tables) > 1 else ""
        return f"{self.tables[table].unit} {number}{more}"

    def error(
        self,
        row: int,
        problem: str,
        column: str,
        found: object = None,
        allowed: object = None,
        suffix: str = "",
    ) -> UserError:
        """Creates the error for a value of a row; `suffix` is added after the row's line in the message."""
        # Invisible characters, such as a no-break space, are escaped.
        if isinstance(found, str) and not found.isprintable():
            found = ascii(found)
        problem = f"{problem} at {self.place(row)}{suffix}"
        return UserError(problem, file=self.file(row), key=column, found=found, allowed=allowed)


def read_contents(
    frame: Frame, modality: Modality, columns: Sequence[str], files: ImageFiles
) -> Iterator[Content | Unreadable]:
    """Yields the text (of several columns joined), image or vector of each row, or why it cannot be read."""
    for values in zip(*(frame[column] for column in columns), strict=True):
        if modality == "text":
            yield _read_text(values)
        else:
            yield _read_image(values[0], files) if modality == "image" else _read_vector(values[0])


def _read_text(values: Sequence[Any]) -> str | Unreadable:
    parts = []
    for value in values:
        joined_blank = len(values) > 1 and isinstance(value, str) and value.strip() in MISSING
        if value is None or value != value or joined_blank:  # NaN of a Parquet file is not equal to itself
            continue
        if isinstance(value, str) and LISTED.match(value):
            with suppress(ValueError):
                value = items_of(value.strip())
        if isinstance(value, list | tuple) and all(isinstance(token, str) for token in value):
            value = " ".join(value)
        if not isinstance(value, str):
            return Unreadable("no text", f"{value!r:.60}")
        if not is_unicode(value):
            return Unreadable("not Unicode text: half of a surrogate pair")
        parts += [value] if value.strip() else []
    return "\n".join(parts) if parts else Unreadable(EMPTY)


def _read_vector(value: Any) -> list[float] | Unreadable:
    with suppress(TypeError, ValueError):
        numbers = json.loads(value) if isinstance(value, str) else value
        if not isinstance(numbers, bytes | Mapping):
            return [float(number) for number in numbers]
    return Unreadable("no list of numbers", f"{value!s:.60}")


def _read_image(value: Any, files: ImageFiles) -> bytes | Path | Unreadable:
    if isinstance(value, Mapping):
        # The usual way to keep an image in Parquet: {"bytes": ..., "path": ...}.
        value = value.get("bytes") or value.get("path")
    if isinstance(value, bytes):
        return value
    if not isinstance(value, str) or not value.strip():
        return Unreadable("no image")
    file = files.find(value.strip())
    return Unreadable("no such image file", value) if file is None else file


def _find_file(path: Path) -> Path | None:
    with suppress(OSError, ValueError):  # the text cannot be a file name
        return path if path.is_file() else None
    return None


class ImageFiles:
    """Finds the image files that a table in `folder` names."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def find(self, name: str) -> Path | None:
        """Returns the image file that a cell names; None if there is none.

        The name is a path from the table's folder. A name without a folder, with or without suffix, may also
        be that of one file anywhere below. Otherwise the name is a path from the folder above the table's.
        """
        if file := _find_file(self._folder / name):
            return file
        if "/" not in name and name in self._files_by_name:
            return self._files_by_name[name]
        return _find_file(self._folder.parent / name)

    def has(self, name: str) -> bool:
        """Whether a cell names a file with the suffix of an image."""
        file = self.find(name)
        return file is not None and IMAGE.search(file.name) is not None

    @cached_property
    def _files_by_name(self) -> dict[str, Path | None]:
        """Maps file names below the folder, with and without suffix, to files; None for several files."""
        files: dict[str, Path | None] = {}
        for folder, folders, names in os.walk(self._folder):
            folders[:] = [name for name in folders if not name.startswith(".")]
            for name in names:
                for key in {name, Path(name).stem}:
                    files[key] = None if key in files else Path(folder) / name
        return files
