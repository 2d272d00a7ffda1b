"""Reads the shards of a data set: columns when they are asked for, images by row groups."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, overload

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from torch import Tensor

from mlcl.data.format import DatasetInfo
from mlcl.errors import UserError

ROW_GROUPS_KEPT = 4
"""Row groups of images that stay in memory."""


class ShardReader:
    """The Parquet files of a data set, each opened once.

    `place` is the folder as the user gave it; `filesystem` and `folder` say where pyarrow finds it.
    """

    def __init__(self, place: str, filesystem: Any, folder: str, info: DatasetInfo) -> None:
        self.place = place
        self.info = info
        self._filesystem = filesystem
        self._folder = folder
        self._files: dict[int, Any] = {}

    def with_info(self, info: DatasetInfo) -> ShardReader:
        """The same files, described anew."""
        return ShardReader(self.place, self._filesystem, self._folder, info)

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


class ImageColumn(Sequence[bytes]):
    """Encoded images, read a row group at a time; only the last few row groups stay in memory."""

    def __init__(self, reader: ShardReader, rows: Tensor) -> None:
        self._reader = reader
        self._rows: list[int] = rows.tolist()
        footers = [reader.parquet(shard).metadata for shard in range(len(reader.info.shards))]
        self._places = [(shard, i) for shard, it in enumerate(footers) for i in range(it.num_row_groups)]
        sizes = [footers[shard].row_group(i).num_rows for shard, i in self._places]
        self._first = np.cumsum([0, *sizes])
        self._groups: OrderedDict[int, Any] = OrderedDict()

    def __len__(self) -> int:
        return len(self._rows)

    @overload
    def __getitem__(self, item: int) -> bytes: ...
    @overload
    def __getitem__(self, item: slice) -> list[bytes]: ...
    def __getitem__(self, item: int | slice) -> bytes | list[bytes]:
        if isinstance(item, slice):
            return [self._image(row) for row in self._rows[item]]
        return self._image(self._rows[item])

    def _image(self, row: int) -> bytes:
        group = int(np.searchsorted(self._first, row, side="right")) - 1
        if group not in self._groups:
            self._groups[group] = self._read(*self._places[group])
            if len(self._groups) > ROW_GROUPS_KEPT:
                self._groups.popitem(last=False)
        self._groups.move_to_end(group)
        image: bytes = self._groups[group][row - int(self._first[group])].as_py() or b""
        return image

    def _read(self, shard: int, group: int) -> Any:
        with self._reader.reading(shard):
            return self._reader.parquet(shard).read_row_group(group, columns=["image"]).column(0)
