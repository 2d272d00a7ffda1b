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
