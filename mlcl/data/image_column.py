"""The encoded images of some rows, as a sequence that reads Parquet row groups on demand."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from typing import Any, overload

import numpy as np
from torch import Tensor

from mlcl.data.shard_reader import ShardReader

ROW_GROUPS_KEPT = 4
"""Row groups of images that stay in memory."""


class ImageColumn(Sequence[bytes]):
    """Encoded images, read a row group at a time; only the last few row groups stay in memory."""

    def __init__(self, reader: ShardReader, rows: Tensor) -> None:
        self._reader = reader
        self._rows: list[int] = rows.tolist()
        self._first = np.cumsum([0, *(shard.rows for shard in reader.info.shards)])
        self._groups: OrderedDict[tuple[int, int], tuple[int, Any]] = OrderedDict()

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
        shard = int(np.searchsorted(self._first, row, side="right")) - 1
        first, images = self._group(shard, int(row - self._first[shard]))
        image: bytes = images[row - int(self._first[shard]) - first].as_py() or b""
        return image

    def _group(self, shard: int, row: int) -> tuple[int, Any]:
        for (number, group), (first, images) in reversed(self._groups.items()):
            if number == shard and first <= row < first + len(images):
                self._groups.move_to_end((number, group))
                return first, images
        return self._load(shard, row)

    def _load(self, shard: int, row: int) -> tuple[int, Any]:
        file = self._reader.parquet(shard)
        sizes = [file.metadata.row_group(i).num_rows for i in range(file.num_row_groups)]
        starts = np.cumsum([0, *sizes])
        group = int(np.searchsorted(starts, row, side="right")) - 1
        with self._reader.reading(shard):
            images = file.read_row_group(group, columns=["image"]).column(0)
        self._groups[shard, group] = (int(starts[group]), images)
        if len(self._groups) > ROW_GROUPS_KEPT:
            self._groups.popitem(last=False)
        return self._groups[shard, group]
