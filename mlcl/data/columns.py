"""Columns of a data set's shards: read when they are asked for, checked, and turned into tensors.

Shapes: N rows, A aspects, H levels, E stored entries, F numbers of a vector.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from itertools import pairwise
from typing import Any, overload

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import torch
from numpy.typing import NDArray
from torch import Tensor

from mlcl.data.format import DatasetInfo, LabelSpace
from mlcl.errors import UserError
from mlcl.labels import LabelRows

ROW_GROUPS_KEPT = 4
"""The number of Parquet row groups of images that stay in memory."""


class ShardReader:
    """Reads the Parquet files of a data set, each opened once. `firsts` has the first row number of each.

    `place` is the data set's folder as the user gave it; `filesystem` and `folder` are `locate(place)`.
    """

    def __init__(self, place: str, filesystem: Any, folder: str, info: DatasetInfo) -> None:
        self.place = place
        self.info = info
        self.firsts = np.cumsum([0, *(shard.rows for shard in info.shards)])
        self._filesystem = filesystem
        self._folder = folder
        self._files: dict[int, Any] = {}

    def with_info(self, info: DatasetInfo) -> ShardReader:
        """Returns a reader of the same files with another `DatasetInfo`."""
        return ShardReader(self.place, self._filesystem, self._folder, info)

    def shard_file(self, number: int) -> str:
        """Returns the path of shard `number`, in the folder as the user gave it."""
        return f"{self.place.rstrip('/')}/{self.info.shards[number].file}"

    def place_of(self, row: int) -> tuple[str, int]:
        """Returns the shard file of a row of the data set, and the row's number in that file."""
        number = int(np.searchsorted(self.firsts, row, side="right")) - 1
        return self.shard_file(number), row - int(self.firsts[number])

    def by_shard(self, rows: NDArray[np.int64]) -> list[tuple[int, NDArray[np.int64]]]:
        """Returns (shard number, row numbers in the shard) of each shard with some of `rows` (ascending)."""
        cuts = np.searchsorted(rows, self.firsts)
        parts = [(shard, rows[a:b] - self.firsts[shard]) for shard, (a, b) in enumerate(pairwise(cuts))]
        return [(shard, shard_rows) for shard, shard_rows in parts if len(shard_rows)]

    def parquet(self, number: int) -> Any:
        """Returns a shard's open `pyarrow.parquet.ParquetFile`."""
        if number not in self._files:
            with self.reading(number):
                source = self._filesystem.open_input_file(f"{self._folder}/{self.info.shards[number].file}")
                self._files[number] = pq.ParquetFile(source)
        return self._files[number]

    def column(self, number: int, name: str) -> Any:
        """Reads a whole column of a shard, as an Arrow column."""
        with self.reading(number):
            column = self.parquet(number).read(columns=[name]).column(0)
            column.validate(full=True)  # raises an error for texts that are not UTF-8
            return column

    @contextmanager
    def reading(self, number: int) -> Iterator[None]:
        """Turns pyarrow's errors for a missing or damaged shard into a UserError that names the file."""
        file = self.shard_file(number)
        try:
            yield
        except FileNotFoundError:
            raise UserError("shard is missing", file=file) from None
        except (pa.ArrowException, OSError) as error:
            raise UserError("not a whole Parquet file; was it truncated?", file=file, found=error) from None


class ImageColumn(Sequence[bytes]):
    """The encoded images of `rows`, read by row group; the last `ROW_GROUPS_KEPT` groups stay in memory."""

    def __init__(self, reader: ShardReader, rows: Tensor) -> None:
        self._reader = reader
        self._rows: list[int] = rows.tolist()
        footers = [reader.parquet(shard).metadata for shard in range(len(reader.info.shards))]
        self._group_places = [
            (shard, i) for shard, meta in enumerate(footers) for i in range(meta.num_row_groups)
        ]
        sizes = [footers[shard].row_group(i).num_rows for shard, i in self._group_places]
        self._first_rows = np.cumsum([0, *sizes])
        self._load_group = lru_cache(ROW_GROUPS_KEPT)(self._read_group)

    def __len__(self) -> int:
        return len(self._rows)

    @overload
    def __getitem__(self, item: int) -> bytes: ...
    @overload
    def __getitem__(self, item: slice) -> list[bytes]: ...
    def __getitem__(self, item: int | slice) -> bytes | list[bytes]:
        if isinstance(item, slice):
            return [self._read_image(row) for row in self._rows[item]]
        return self._read_image(self._rows[item])

    def _read_image(self, row: int) -> bytes:
        group = int(np.searchsorted(self._first_rows, row, side="right")) - 1
        image: bytes = self._load_group(group)[row - int(self._first_rows[group])].as_py() or b""
        return image

    def _read_group(self, group: int) -> Any:
        shard, number = self._group_places[group]
        with self._reader.reading(shard):
            return self._reader.parquet(shard).read_row_group(number, columns=["image"]).column(0)


def single_classes(column: Any) -> Tensor:
    """Returns class indices (N,) int64 of an int32 column; null is -1."""
    return torch.from_numpy(integers(column, -1))


def integers(column: Any, missing_value: int) -> NDArray[np.int64]:
    """Returns the numbers of an integer column, `missing_value` for null.

    Arrow's own conversion imports pandas.
    """
    array = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    values = np.full(len(array), missing_value, np.int64)
    is_valid = np.from_dlpack(pc.is_valid(array).cast(pa.uint8())).astype(bool)
    values[is_valid] = np.from_dlpack(array.drop_null())
    return values


def equal_texts(column: Any, text: str) -> NDArray[np.bool_]:
    """Returns whether each text of a column is `text`; False for null."""
    encoded = column.combine_chunks().dictionary_encode()
    texts = encoded.dictionary.to_pylist()
    return np.equal(integers(encoded.indices, -1), texts.index(text) if text in texts else len(texts))


def list_entries(column: Any) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Returns the number of entries of each row (N,) and all entries (E,) of a list column.

    A null row has no entries, and a null entry becomes -1.
    """
    return integers(pc.list_value_length(column), 0), integers(pc.list_flatten(column), -1)


def label_rows(column: Any, width: int) -> LabelRows:
    """Converts a list<int32> column to label rows, sorted and without repeats within a row."""
    counts, entries = list_entries(column)
    return rows_of_entries(np.repeat(np.arange(len(counts)), counts), entries, len(counts), width)


def as_rows(labels: Tensor | LabelRows, space: LabelSpace) -> LabelRows:
    """Returns the labels of a single or multi-label space as sparse rows."""
    return labels if isinstance(labels, LabelRows) else LabelRows.from_classes(labels, space.n_classes)


def rows_of_entries(
    row_E: NDArray[np.int64], column_E: NDArray[np.int64], rows: int, width: int
) -> LabelRows:
    """Builds label rows from the row and column of each entry, in any order; repeats become one entry."""
    key_E = row_E * width + column_E
    if np.any(key_E[1:] <= key_E[:-1]):
        key_E = np.unique(key_E)
    counts = np.bincount(key_E // width, minlength=rows)
    offsets = torch.from_numpy(np.concatenate([[0], np.cumsum(counts)]).astype(np.int64))
    return LabelRows(offsets, torch.from_numpy(key_E % width), width)


def parent_rows(rows: LabelRows, parents: Sequence[int], width: int) -> LabelRows:
    """Replaces each label by its parent, `parents[label]`, in a level of `width` classes."""
    parent_E = np.asarray(parents, dtype=np.int64)[rows.columns.numpy()]
    return rows_of_entries(rows.row_index().numpy(), parent_E, len(rows), width)


def ratings(column: Any, n_aspects: int) -> Tensor:
    """Returns ratings (N, A) float32 of a fixed-size list column; 0 stands for a missing one."""
    flat = pc.list_flatten(column).to_numpy().astype(np.float32)
    return torch.from_numpy(flat.reshape(-1, n_aspects))


def vectors(column: Any) -> NDArray[np.float32]:
    """Returns vectors (N, F) float32 of a fixed-size list column."""
    flat: NDArray[np.float32] = pc.list_flatten(column).to_numpy()
    return flat.reshape(len(column), -1)


def rating_classes(rating: Tensor, scale: Sequence[float]) -> Tensor:
    """Returns the index of each rating in the scale (int64), in the shape of `rating`; -1 if missing."""
    scale_R = torch.tensor(scale, dtype=torch.float32)
    nearest = (rating[..., None] - scale_R).abs().argmin(dim=-1)
    return torch.where(rating == 0, -1, nearest)


def bad_rows(column: Any, space: LabelSpace) -> NDArray[np.bool_]:
    """Returns a mask (N,) of the rows with a class index outside the space or a rating outside its scale."""
    if space.kind == "single":
        index_N = single_classes(column).numpy()
        return (index_N < -1) | (index_N >= space.n_classes)
    if space.kind == "multi_label":
        counts, entries = list_entries(column)
        outside_E = (entries < 0) | (entries >= space.n_classes)
        row_E = np.repeat(np.arange(len(counts)), counts)
        return np.bincount(row_E, weights=outside_E, minlength=len(counts)) > 0
    rating_NA = ratings(column, len(space.aspects)).numpy()
    allowed = np.asarray((0.0, *space.scale), dtype=np.float32)
    return np.asarray(~np.isin(rating_NA, allowed).all(axis=1))


def to_arrow(values: Any, arrow_type: Any) -> Any:
    """Converts values to an Arrow array; a missing rating, and each rating of a missing row, becomes zero.

    Parquet cannot read a null fixed-size list back, hence the zeros.
    """
    if isinstance(values, pa.ChunkedArray):
        return values.cast(arrow_type)
    if pa.types.is_fixed_size_list(arrow_type) and not isinstance(values, pa.Array):
        zeros = [0.0] * arrow_type.list_size
        values = [zeros if row is None else [0.0 if r is None else r for r in row] for row in values]
    return pa.array(values, arrow_type)


def vectors_to_arrow(values: Any, arrow_type: Any) -> Any:
    """Converts vectors to a fixed-size list array. Raises ValueError for a vector of another size."""
    rows = np.asarray(values, dtype=np.float32).reshape(len(values), arrow_type.list_size)
    return pa.FixedSizeListArray.from_arrays(pa.array(rows.ravel()), arrow_type.list_size)
