"""Writes a data set, shard by shard, to a temporary folder that is renamed when it is complete."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pydantic import ValidationError

from mlcl.data.columns import to_arrow, vectors_to_arrow
from mlcl.data.dataset import Dataset
from mlcl.data.format import INFO_FILE, SPLITS, DatasetInfo, LabelSpace, Modality, Shard, SplitName, columns
from mlcl.errors import UserError
from mlcl.files import new_folder, sha256_of

GROUP_ROWS = {"text": 16_384, "image": 1_024, "vectors": 16_384}
"""The number of rows of a Parquet row group, which is read from a shard at once, by modality."""
ROWS_AT_ONCE = 1_024
"""The number of rows of a batch that a source gives to the writer."""


class SplitWriter:
    """Writes the shards of one split, a row group at a time. `rows` is the number of rows added."""

    def __init__(self, folder: Path, split: str, schema: Any, group_rows: int, shard_rows: int) -> None:
        self.rows = 0
        self._folder, self._split, self._schema = folder, split, schema
        self._group_rows, self._shard_rows = min(group_rows, shard_rows), shard_rows
        self._waiting_rows: Any = schema.empty_table()
        self._shards: list[Shard] = []
        self._writer: pq.ParquetWriter | None = None
        self._n_written = 0

    def add(self, table: Any) -> None:
        """Adds rows of this split, as an Arrow table."""
        self.rows += len(table)
        self._waiting_rows = pa.concat_tables([self._waiting_rows, table])
        while len(self._waiting_rows) >= self._group_rows:
            self._write_group(self._group_rows)

    def close(self) -> list[Shard]:
        """Writes the rows that are still buffered, and returns the shards."""
        if len(self._waiting_rows):
            self._write_group(len(self._waiting_rows))
        self._end_shard()
        return self._shards

    def _shard_path(self) -> Path:
        return self._folder / f"{self._split}-{len(self._shards):05d}.parquet"

    def _write_group(self, rows: int) -> None:
        if self._n_written + rows > self._shard_rows:
            self._end_shard()
        if self._writer is None:
            # Encoded images do not compress further. Only `split` has a dictionary: its values repeat.
            compression = "none" if "image" in self._schema.names else "zstd"
            self._writer = pq.ParquetWriter(
                self._shard_path(), self._schema, compression=compression, use_dictionary=["split"]
            )
        self._writer.write_table(self._waiting_rows.slice(0, rows), row_group_size=rows)
        self._waiting_rows = self._waiting_rows.slice(rows)
        self._n_written += rows

    def _end_shard(self) -> None:
        if self._writer is not None:
            self._writer.close()
            path = self._shard_path()
            with path.open("rb") as file:
                digest = sha256_of(file)
            self._shards.append(Shard(file=path.name, rows=self._n_written, sha256=digest))
            self._writer, self._n_written = None, 0


RowBatch = Mapping[str, Sequence[Any]]
"""Some rows as columns by name: id, text, image or vectors, split, the label columns, and `row.group`."""


def in_batches(
    columns: Mapping[str, Sequence[Any]], content: str, values: Iterable[Any]
) -> Iterator[dict[str, Any]]:
    """Yields batches for `write_dataset` of columns in memory and contents that come one by one.

    `values` are the texts, images or vectors; they become the column named `content`.
    """
    source, start = iter(values), 0
    while chunk := list(islice(source, ROWS_AT_ONCE)):
        rows = slice(start, start + len(chunk))
        yield {**{name: column[rows] for name, column in columns.items()}, content: chunk}
        start = rows.stop


@dataclass(frozen=True)
class NewDataset:
    """A data set to be written; `name`, `origin` and `licence` default to those of the source.

    `batches` are its rows, which are read once, in order, and `dim` is the size of vectors. `notes` say how
    the rows came about. `allow_untrained` accepts classes that the test split alone has, and `grouped` says
    that the rows have `row.group`. `place_of` returns the user's file and the line there of a row's id,
    and raises ValueError for an unknown one.
    """

    modality: Modality
    label_spaces: dict[str, LabelSpace]
    batches: Iterable[RowBatch]
    notes: Sequence[str] = ()
    allow_untrained: bool = False
    dim: int | None = None
    grouped: bool = False
    name: str | None = None
    origin: str | None = None
    licence: str | None = None
    place_of: Callable[[str], tuple[Path, str]] | None = None


def write_dataset(folder: Path, dataset: NewDataset, shard_rows: int = 65_536) -> DatasetInfo:
    """Writes a data set as a whole or not at all; an existing folder with the same fingerprint is kept.

    A shard holds rows of one split, at most `shard_rows`, so that training never opens a test shard's labels.
    Raises UserError if the folder has another data set, if there are no rows, if values do not fit a column,
    and if the disk cannot be written.
    """
    types = columns(dataset.modality, dataset.label_spaces, dataset.dim, dataset.grouped)
    try:
        with new_folder(folder) as work:
            rows, shards = _write_shards(
                work, dataset.batches, types, GROUP_ROWS[dataset.modality], shard_rows
            )
            info = DatasetInfo(
                name=dataset.name or "",
                modality=dataset.modality,
                dim=dataset.dim,
                label_spaces=dataset.label_spaces,
                rows=rows,
                source=dataset.origin or "",
                licence=dataset.licence or "",
                allow_untrained=dataset.allow_untrained,
                grouped=dataset.grouped,
                notes=tuple(dataset.notes),
                shards=shards,
            )
            text = info.model_dump_json(indent=1, exclude=None if dataset.notes else {"notes"})
            (work / INFO_FILE).write_text(text + "\n", encoding="utf-8")
    except FileExistsError:
        existing_info = Dataset.open(folder).info
        if existing_info.fingerprint == info.fingerprint:
            return existing_info
        problem, allowed = "another data set is there", info.fingerprint
        raise UserError(problem, file=folder, found=existing_info.fingerprint, allowed=allowed) from None
    except ValidationError as error:
        raise UserError("no data set", file=folder, found=error.errors()[0]["msg"]) from None
    except OSError as error:
        raise UserError("cannot be written", file=folder, found=error) from None
    return info


def _write_shards(
    folder: Path, batches: Iterable[RowBatch], types: Mapping[str, Any], group_rows: int, shard_rows: int
) -> tuple[dict[SplitName, int], tuple[Shard, ...]]:
    schema = pa.schema(list(types.items()))
    writers = {split: SplitWriter(folder, split, schema, group_rows, shard_rows) for split in SPLITS}
    for batch in batches:
        table = pa.table(
            [_convert_column(batch, name, type_) for name, type_ in types.items()], schema=schema
        )
        for split in table["split"].unique().to_pylist():
            if split not in SPLITS:
                raise UserError("unknown split", key="split", found=split, allowed=SPLITS)
            writers[split].add(table.filter(pc.equal(table["split"], split)))
    shards = [shard for writer in writers.values() for shard in writer.close()]
    if not shards:
        raise UserError("no rows to write")
    return {split: writer.rows for split, writer in writers.items() if writer.rows}, tuple(shards)


def _convert_column(batch: RowBatch, name: str, arrow_type: Any) -> Any:
    try:
        convert = vectors_to_arrow if name == "vectors" else to_arrow
        return convert(batch[name], arrow_type)
    except KeyError:
        raise UserError("column is missing", key=name, found=list(batch)) from None
    except (pa.ArrowException, TypeError, ValueError) as error:
        raise UserError("values do not fit the column", key=name, found=error, allowed=arrow_type) from None
