"""Reading a prepared data set: opened with the footers alone, columns when they are asked for."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from mlcl.config.loader import validate
from mlcl.data.files import locate
from mlcl.data.format import INFO_FILE, SPLITS, DatasetInfo, Shard
from mlcl.data.split import Part, Split, SplitRows
from mlcl.errors import UserError


class Dataset:
    """A prepared data set. `Dataset.open(path_or_uri)` makes one; `split(name)` gives its rows."""

    def __init__(self, place: str, filesystem: Any, folder: str, info: DatasetInfo) -> None:
        self.place = place
        self.info = info
        self._filesystem = filesystem
        self._folder = folder
        self._files: dict[int, Any] = {}
        self._splits: dict[str, SplitRows] = {}

    @classmethod
    def open(cls, place: str | Path, verify: bool = False) -> Dataset:
        """The data set in a folder or at a pyarrow filesystem URI.

        Checks `dataset.json`, that every shard is there, its row count and its columns; with `verify` also
        its SHA-256. No labels are read. Raises UserError with the file.
        """
        filesystem, folder = locate(place)
        data = cls(str(place), filesystem, folder, _read_info(filesystem, folder, str(place)))
        for number, shard in enumerate(data.info.shards):
            data._check_footer(number, shard)
            if verify:
                data._check_hash(shard)
        return data

    def split(self, name: str) -> Split:
        """The rows of `train`, `validation` or `test`. Raises UserError where there are none.

        This is the only way to the test split, and nothing but evaluation takes it.
        """
        if name not in SPLITS or not self.info.rows.get(name):  # type: ignore[call-overload]
            have = [split for split, rows in self.info.rows.items() if rows]
            raise UserError("the data set has no such split", file=self.place, found=name, allowed=have)
        if name not in self._splits:
            parts = self._parts(name)
            self._check_rows(name, sum(len(part.here) for part in parts))
            self._splits[name] = SplitRows(self, name, parts)
        return Split(self._splits[name])

    def shard_file(self, number: int) -> str:
        """Where a shard lies, as the user gave the place."""
        return f"{self.place.rstrip('/')}/{self.info.shards[number].file}"

    def place_of(self, row: int) -> tuple[str, int]:
        """The shard's file, and the row in it, of a row of the data set."""
        first = 0
        for number, shard in enumerate(self.info.shards):
            if row < first + shard.rows:
                return self.shard_file(number), row - first
            first += shard.rows
        raise IndexError(row)

    def parquet(self, number: int) -> Any:
        """A shard's open `pyarrow.parquet.ParquetFile`."""
        if number not in self._files:
            with self.reading(number):
                source = self._filesystem.open_input_file(f"{self._folder}/{self.info.shards[number].file}")
                self._files[number] = pq.ParquetFile(source)
        return self._files[number]

    def column(self, number: int, name: str) -> Any:
        """One column of a shard, whole."""
        with self.reading(number):
            column = self.parquet(number).read(columns=[name]).column(0)
            column.validate(full=True)  # texts that are not UTF-8 come to light here
            return column

    @contextmanager
    def reading(self, number: int) -> Iterator[None]:
        """Turns what pyarrow raises on a damaged shard into a UserError that names it."""
        file = self.shard_file(number)
        try:
            yield
        except FileNotFoundError:
            raise UserError("shard is missing", file=file) from None
        except (pa.ArrowException, OSError) as error:
            raise UserError("not a whole Parquet file; was it truncated?", file=file, found=error) from None

    def _parts(self, split: str) -> list[Part]:
        parts, first = [], 0
        for number, shard in enumerate(self.info.shards):
            here = np.flatnonzero(self.column(number, "split").to_numpy() == split)
            if len(here):
                parts.append(Part(number, first, here))
            first += shard.rows
        return parts

    def _check_rows(self, split: str, found: int) -> None:
        declared = self.info.rows[split]  # type: ignore[index]
        if found != declared:
            file = f"{self.place.rstrip('/')}/{INFO_FILE}"
            raise UserError(
                "the shards have another number of rows", file=file, key=f"rows.{split}", found=declared,
                allowed=found,
            )  # fmt: skip

    def _check_footer(self, number: int, shard: Shard) -> None:
        footer, file = self.parquet(number), self.shard_file(number)
        if footer.metadata.num_rows != shard.rows:
            raise UserError(
                "wrong number of rows", file=file, found=footer.metadata.num_rows, allowed=shard.rows
            )
        with self.reading(number):
            found = {field.name: field.type for field in footer.schema_arrow}
        _check_columns(found, self.info.columns(), file)

    def _check_hash(self, shard: Shard) -> None:
        digest = hashlib.sha256()
        with self._filesystem.open_input_stream(f"{self._folder}/{shard.file}") as stream:
            while block := stream.read(1 << 22):
                digest.update(block)
        if digest.hexdigest() != shard.sha256:
            file = f"{self.place.rstrip('/')}/{shard.file}"
            raise UserError("SHA-256 differs", file=file, found=digest.hexdigest(), allowed=shard.sha256)


def _check_columns(found: Mapping[str, Any], expected: Mapping[str, Any], file: str) -> None:
    for name, arrow_type in expected.items():
        if name not in found:
            raise UserError(
                "column is missing", file=file, key=name, found=list(found), allowed=list(expected)
            )
        if found[name] != arrow_type:
            raise UserError("wrong column type", file=file, key=name, found=found[name], allowed=arrow_type)


def _read_info(filesystem: Any, folder: str, place: str) -> DatasetInfo:
    file = f"{place.rstrip('/')}/{INFO_FILE}"
    try:
        with filesystem.open_input_stream(f"{folder}/{INFO_FILE}") as stream:
            tree = json.loads(stream.read())
    except FileNotFoundError:
        raise UserError("not a prepared data set: no such file", file=file) from None
    except (OSError, pa.ArrowException) as error:
        raise UserError("cannot be read", file=file, found=error) from None
    except (ValueError, RecursionError) as error:
        raise UserError("not valid JSON", file=file, found=error) from None
    if not isinstance(tree, dict):
        raise UserError("must be a mapping of keys", file=file, found=type(tree).__name__)
    return validate(DatasetInfo, tree, file)
