"""Shards under way: Parquet files of one split, row group by row group, hashed as they are written."""

from __future__ import annotations

import hashlib
import io
from pathlib import Path
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq

from mlcl.data.format import Shard


class SplitWriter:
    """The shards of one split: rows wait until a row group is full. `rows` counts them."""

    def __init__(self, folder: Path, split: str, schema: Any, group_rows: int, shard_rows: int) -> None:
        self.rows = 0
        self._folder, self._split, self._schema = folder, split, schema
        self._group_rows, self._shard_rows = min(group_rows, shard_rows), shard_rows
        self._waiting: list[Any] = []
        self._shards: list[Shard] = []
        self._open: _ShardFile | None = None

    def add(self, table: Any) -> None:
        """Rows of this split, as an Arrow table."""
        self.rows += len(table)
        self._waiting.append(table)
        if sum(map(len, self._waiting)) >= self._group_rows:
            self._write(whole_groups=True)

    def close(self) -> list[Shard]:
        """Write what waits, and say which shards there are."""
        self._write(whole_groups=False)
        self._finish()
        return self._shards

    def _write(self, whole_groups: bool) -> None:
        table = pa.concat_tables([self._schema.empty_table(), *self._waiting])
        while len(table) >= self._group_rows or (len(table) and not whole_groups):
            self._group(table.slice(0, self._group_rows))
            table = table.slice(self._group_rows)
        self._waiting = [table] if len(table) else []

    def _group(self, table: Any) -> None:
        if self._open is not None and self._open.rows + len(table) > self._shard_rows:
            self._finish()
        if self._open is None:
            name = f"{self._split}-{len(self._shards):05d}.parquet"
            self._open = _ShardFile(self._folder / name, self._schema)
        self._open.write(table)

    def _finish(self) -> None:
        if self._open is not None:
            self._shards.append(self._open.close())
            self._open = None


class _ShardFile:
    """One Parquet file under way."""

    def __init__(self, path: Path, schema: Any) -> None:
        self.rows = 0
        self._path = path
        self._sink = _HashingFile(path.open("xb"))
        # Encoded images do not compress further, and repeat as little as ids do.
        compression = "none" if "image" in schema.names else "zstd"
        self._writer = pq.ParquetWriter(self._sink, schema, compression=compression, use_dictionary=["split"])

    def write(self, table: Any) -> None:
        self.rows += len(table)
        self._writer.write_table(table, row_group_size=len(table))

    def close(self) -> Shard:
        self._writer.close()
        self._sink.close()
        return Shard(file=self._path.name, rows=self.rows, sha256=self._sink.digest.hexdigest())


class _HashingFile(io.RawIOBase):
    """A file that is hashed as it is written; Parquet writes front to back."""

    def __init__(self, file: BinaryIO) -> None:
        self.digest = hashlib.sha256()
        self._file = file

    def write(self, data: Any) -> int:
        block = memoryview(data).cast("B")
        self.digest.update(block)
        return self._file.write(block)

    def tell(self) -> int:
        return self._file.tell()

    def close(self) -> None:
        self._file.close()
        super().close()

    def writable(self) -> bool:
        return True
