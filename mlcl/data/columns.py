"""From Arrow columns to the label tensors that training uses, and to those columns from plain rows.

Shapes: N rows, A aspects, H levels, E stored entries.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import torch
from numpy.typing import NDArray
from torch import Tensor

from mlcl.data.format import LabelSpace
from mlcl.labels import LabelRows


def single_classes(column: Any) -> Tensor:
    """Class indices (N,) int64 of an int32 column; null is -1."""
    filled = pc.fill_null(column, -1).to_numpy()
    return torch.from_numpy(filled.astype(np.int64))


def list_entries(column: Any) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Entries a row (N,) and all entries (E,) of a list column; null is an empty row."""
    counts = pc.fill_null(pc.list_value_length(column), 0).to_numpy().astype(np.int64)
    return counts, pc.fill_null(pc.list_flatten(column), -1).to_numpy().astype(np.int64)


def label_rows(column: Any, width: int) -> LabelRows:
    """CSR rows of a list<int32> column, sorted and without repeats within a row."""
    counts, entries = list_entries(column)
    return rows_of_entries(np.repeat(np.arange(len(counts)), counts), entries, len(counts), width)


def as_rows(labels: Tensor | LabelRows, space: LabelSpace) -> LabelRows:
    """Labels of a single or multi-label space as sparse rows."""
    return labels if isinstance(labels, LabelRows) else LabelRows.from_classes(labels, space.n_classes)


def rows_of_entries(
    row_E: NDArray[np.int64], column_E: NDArray[np.int64], rows: int, width: int
) -> LabelRows:
    """CSR rows of entries in any order; repeats within a row become one."""
    key_E = row_E * width + column_E
    if np.any(key_E[1:] <= key_E[:-1]):
        key_E = np.unique(key_E)
    counts = np.bincount(key_E // width, minlength=rows)
    offsets = torch.from_numpy(np.concatenate([[0], np.cumsum(counts)]).astype(np.int64))
    return LabelRows(offsets, torch.from_numpy(key_E % width), width)


def parent_rows(rows: LabelRows, parents: Sequence[int], width: int) -> LabelRows:
    """The rows' labels one level up, where there are `width` classes."""
    parent_E = np.asarray(parents, dtype=np.int64)[rows.columns.numpy()]
    return rows_of_entries(rows.row_index().numpy(), parent_E, len(rows), width)


def ratings(column: Any, n_aspects: int) -> Tensor:
    """Ratings (N, A) float32 of a fixed-size list column; 0 is missing."""
    flat = pc.list_flatten(column).to_numpy().astype(np.float32)
    return torch.from_numpy(flat.reshape(-1, n_aspects))


def vectors(column: Any) -> NDArray[np.float32]:
    """Vectors (N, F) float32 of a fixed-size list column."""
    flat: NDArray[np.float32] = pc.list_flatten(column).to_numpy()
    return flat.reshape(len(column), -1)


def rating_classes(rating: Tensor, scale: Sequence[float]) -> Tensor:
    """The scale's index (int64, any shape) of each rating; -1 for missing."""
    scale_R = torch.tensor(scale, dtype=torch.float32)
    nearest = (rating[..., None] - scale_R).abs().argmin(dim=-1)
    return torch.where(rating == 0, -1, nearest)


def bad_rows(column: Any, space: LabelSpace) -> NDArray[np.bool_]:
    """Which rows (N,) hold a class index outside the space or a rating outside its scale."""
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


def open_and_known(known: Any, unknown: Any, width: int) -> NDArray[np.int64]:
    """The entries (E, 2), as row and class, of both of two list<int32> columns."""
    rows, open_rows = label_rows(known, width), label_rows(unknown, width)
    both_E = np.intersect1d(rows.cells().numpy(), open_rows.cells().numpy())
    return np.stack(np.divmod(both_E, width), axis=1)


def to_arrow(values: Any, arrow_type: Any) -> Any:
    """Plain values as an Arrow array; a missing row of ratings becomes zeros.

    Parquet cannot read a null fixed-size list back, hence the zeros.
    """
    if pa.types.is_fixed_size_list(arrow_type) and not isinstance(values, (pa.Array, pa.ChunkedArray)):
        missing = [0.0] * arrow_type.list_size
        values = [missing if row is None else [0.0 if r is None else r for r in row] for row in values]
    return (
        pa.array(values, arrow_type) if not isinstance(values, pa.ChunkedArray) else values.cast(arrow_type)
    )


def vectors_to_arrow(values: Any, arrow_type: Any) -> Any:
    """Rows of numbers as a fixed-size list array. Raises ValueError for rows of another length."""
    rows = np.asarray(values, dtype=np.float32).reshape(len(values), arrow_type.list_size)
    return pa.FixedSizeListArray.from_arrays(pa.array(rows.ravel()), arrow_type.list_size)
