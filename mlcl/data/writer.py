"""Writing a data set: shards are hashed while they are written, the folder renamed when it is whole."""

from __future__ import annotations

import hashlib
import io
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pydantic import ValidationError

from mlcl.data.columns import to_arrow, vectors_to_arrow
from mlcl.data.dataset import Dataset
from mlcl.data.format import INFO_FILE, SPLITS, DatasetInfo, LabelSpace, Modality, Shard, columns
from mlcl.errors import UserError
from mlcl.files import new_folder

GROUP_ROWS = {"text": 16_384, "image": 1_024, "vectors": 16_384}
"""Rows that are read from a shard at once, by modality."""
ROWS_AT_ONCE = 1_024
"""Rows of a batch that is written."""


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


Batch = Mapping[str, Sequence[Any]]
"""Some rows, column by column: id, text, image or vectors, split, and the label columns."""


def in_batches(
    columns: Mapping[str, Sequence[Any]], content: str, values: Iterable[Any]
) -> Iterator[dict[str, Any]]:
    """Batches for `write_dataset`: `columns` are held, the texts or images (`content`) come one by one."""
    source, first = iter(values), 0
    while drawn := list(islice(source, ROWS_AT_ONCE)):
        here = slice(first, first + len(drawn))
        yield {**{name: column[here] for name, column in columns.items()}, content: drawn}
        first = here.stop


def write_dataset(
    folder: Path,
    *,
    name: str,
    modality: Modality,
    label_spaces: dict[str, LabelSpace],
    batches: Iterable[Batch],
    source: str,
    licence: str,
    dim: int | None = None,
    allow_untrained: bool = False,
    notes: Sequence[str] = (),
    shard_rows: int = 65_536,
) -> DatasetInfo:
    """Write rows as a data set; a shard holds one split, so training never opens a test shard's labels.

    The folder appears whole or not at all. An existing one is left as it is where it has the same
    fingerprint. `dim` is the size of vectors. Raises UserError for another one there, for no rows, for values
    that a column cannot take and for a full disk.
    """
    try:
        with new_folder(folder) as work:
            info = DatasetInfo(
                name=name,
                modality=modality,
                dim=dim,
                label_spaces=label_spaces,
                source=source,
                licence=licence,
                allow_untrained=allow_untrained,
                notes=tuple(notes),
                **_write_shards(
                    work, batches, columns(modality, label_spaces, dim), GROUP_ROWS[modality], shard_rows
                ),
            )
            text = info.model_dump_json(indent=1, exclude=None if notes else {"notes"})
            (work / INFO_FILE).write_text(text + "\n", encoding="utf-8")
    except FileExistsError:
        return _same(folder, info)
    except ValidationError as error:
        raise UserError("no data set", file=folder, found=error.errors()[0]["msg"]) from None
    except OSError as error:
        raise UserError("cannot be written", file=folder, found=error) from None
    return info


def _same(folder: Path, info: DatasetInfo) -> DatasetInfo:
    found = Dataset.open(folder).info
    if found.fingerprint != info.fingerprint:
        raise UserError(
            "another data set is there", file=folder, found=found.fingerprint, allowed=info.fingerprint
        )
    return found


def _write_shards(
    folder: Path, batches: Iterable[Batch], types: Mapping[str, Any], group_rows: int, shard_rows: int
) -> dict[str, Any]:
    schema = pa.schema(list(types.items()))
    writers = {split: SplitWriter(folder, split, schema, group_rows, shard_rows) for split in SPLITS}
    for batch in batches:
        table = pa.table([_column(batch, name, type_) for name, type_ in types.items()], schema=schema)
        for split in _splits_of(table, folder):
            writers[split].add(table.filter(pc.equal(table["split"], split)))
    shards = [shard for writer in writers.values() for shard in writer.close()]
    if not shards:
        raise UserError("no rows to write", file=folder)
    rows = {split: writer.rows for split, writer in writers.items() if writer.rows}
    return {"rows": rows, "shards": tuple(shards)}


def _column(batch: Batch, name: str, arrow_type: Any) -> Any:
    try:
        convert = vectors_to_arrow if name == "vectors" else to_arrow
        return convert(batch[name], arrow_type)
    except KeyError:
        raise UserError("column is missing", key=name, found=list(batch)) from None
    except (pa.ArrowException, TypeError, ValueError) as error:
        raise UserError("values do not fit the column", key=name, found=error, allowed=arrow_type) from None


def _splits_of(table: Any, folder: Path) -> list[str]:
    found = Counter(table["split"].to_pylist())
    wrong = [split for split in found if split not in SPLITS]
    if wrong:
        raise UserError("unknown split", file=folder, key="split", found=wrong[0], allowed=SPLITS)
    return list(found)
