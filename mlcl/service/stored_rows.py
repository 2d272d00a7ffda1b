"""Embeddings in Parquet files, of which a process reads its own rows alone.

Shapes: N rows, D embedding.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from mlcl.errors import UserError
from mlcl.evaluation.tasks import Array

COLUMN = "embedding"
READ_ROWS = 65_536
"""Rows that are decoded at once."""


@dataclass(frozen=True)
class StoredRows:
    """Rows `first` to `stop` of a Parquet file with embeddings of `dim` values. A slice of it is one, too."""

    file: Path
    first: int
    stop: int
    dim: int

    @classmethod
    def of(cls, file: Path, split: str | None = None) -> StoredRows:
        """All rows of a file, or those of a split in `embeddings.parquet` of a run.

        Reads the footer and the column `split` alone. Raises UserError for a file that cannot be read, has no
        float32 embeddings of one length, or does not have the split's rows together.
        """
        with _reading(file):
            footer = pq.ParquetFile(file)
            whole = cls(file, 0, footer.metadata.num_rows, _dim(footer.schema_arrow, file))
        return whole if split is None else whole[_run_of(file, split)]

    def __len__(self) -> int:
        return self.stop - self.first

    def __getitem__(self, rows: slice) -> StoredRows:
        first, stop, _ = rows.indices(len(self))
        return replace(self, first=self.first + first, stop=self.first + max(first, stop))

    def read_into(self, rows_ND: Array) -> None:
        """Fills (N, D) with the rows. Raises UserError where the file cannot be read, or now has fewer."""
        at = 0
        with _reading(self.file):
            for part_ND in self._batches():
                rows_ND[at : at + len(part_ND)] = part_ND
                at += len(part_ND)
        if at < len(self):
            raise UserError("rows are missing", file=self.file, found=at, allowed=len(self))

    def _batches(self) -> Iterator[Array]:
        """The rows in turn; of other row groups nothing is read."""
        file, at = pq.ParquetFile(self.file), 0
        for group in range(file.num_row_groups):
            after = at + file.metadata.row_group(group).num_rows
            if at < self.stop and after > self.first:
                for batch in file.iter_batches(READ_ROWS, row_groups=[group], columns=[COLUMN]):
                    rows = batch.column(0)[max(self.first - at, 0) : max(self.stop - at, 0)]
                    yield rows.flatten().to_numpy().reshape(-1, self.dim)
                    at += len(batch)
            at = after


def _dim(schema: Any, file: Path) -> int:
    found: Any = schema.field(COLUMN).type if COLUMN in schema.names else pa.null()
    if not pa.types.is_fixed_size_list(found) or found.value_type != pa.float32():
        raise UserError(
            "no embeddings in this file",
            file=file,
            key=COLUMN,
            found=found,
            allowed="fixed_size_list<float>[D]",
        )
    return int(found.list_size)


def _run_of(file: Path, split: str) -> slice:
    """Where the rows of a split lie, which must be together."""
    with _reading(file):
        names = pq.ParquetFile(file).read(columns=["split"])
    if not names.num_columns:
        raise UserError("no splits in this file", file=file, key="split")
    rows = np.flatnonzero(pc.equal(names["split"], split).to_numpy())
    if not len(rows) or rows[-1] - rows[0] + 1 != len(rows):
        raise UserError(
            f"the rows of {split} are not one run", file=file, key="split", found=f"{len(rows)} rows"
        )
    return slice(int(rows[0]), int(rows[-1]) + 1)


@contextmanager
def _reading(file: Path) -> Iterator[None]:
    try:
        yield
    except (OSError, pa.ArrowException) as error:
        raise UserError("the embeddings cannot be read", file=file, found=error) from None
