"""The rows of one split, and parts of it, read column by column.

Shapes: N rows, A aspects, H levels, F numbers of a vector.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import torch
from numpy.typing import NDArray
from torch import Tensor

from mlcl.data import columns
from mlcl.data.columns import ImageColumn, ShardReader
from mlcl.data.format import GROUP, DatasetInfo, HeldOut, LabelSpace, label_columns, plural, unknown_column
from mlcl.errors import UserError
from mlcl.labels import LabelRows


class SplitRows:
    """The rows of one split, and their labels, which are read on demand and kept.

    `rows` are the row numbers (N,) in the data set: all rows of the split or, if classes are held out, only
    the rows with a held-out class (`unseen`) or only the rows without one.
    """

    def __init__(
        self, reader: ShardReader, name: str, rows: NDArray[np.int64], *, unseen: bool = False
    ) -> None:
        self.reader = reader
        self.name = name
        self.unseen = unseen
        self.rows = torch.from_numpy(rows)
        self._shards = reader.by_shard(rows)
        self._cached_labels: dict[str, Tensor | LabelRows] = {}

    def chunks(self, column: str) -> list[Any]:
        """Returns the values of a column in these rows, as one Arrow array per shard."""
        shard_chunks = [(self.reader.column(shard, column), rows) for shard, rows in self._shards]
        return [chunk if len(rows) == len(chunk) else chunk.take(rows) for chunk, rows in shard_chunks]

    def filter_classes(self, held_out: HeldOut, *, unseen: bool) -> SplitRows | None:
        """Returns the rows with a held-out class if `unseen`, else the others; None if there are none."""
        is_kept_N = _has_any(self.labels(held_out.labels), held_out.classes) == unseen
        rows = self.rows.numpy()[is_kept_N]
        return SplitRows(self.reader, self.name, rows, unseen=unseen) if len(rows) else None

    @cached_property
    def ids(self) -> list[str]:
        """The ids of all rows."""
        return self.strings("id")

    def strings(self, column: str) -> list[str]:
        """Returns the values of a column of strings (`id`, `text` or `GROUP`) in all rows."""
        return [text for chunk in self.chunks(column) for text in chunk.to_pylist()]

    def labels(
        self, name: str, replacements: Mapping[str, Tensor | LabelRows] | None = None
    ) -> Tensor | LabelRows:
        """Returns the labels of all rows in a label space, an aspect or a level.

        `replacements` maps label spaces to labels that replace the stored ones.
        """
        space_name, _, part = name.partition(".")
        space = self.reader.info.label_spaces[space_name]
        if space.kind == "hierarchy":
            if part:
                return self.labels(part, replacements)
            levels: list[Any] = [self.labels(level, replacements) for level in space.levels]
            if space.parents:
                return LabelRows.of_levels(levels)
            return torch.stack(levels, dim=1)
        labels = (replacements or {}).get(space_name)
        if labels is None:
            if space_name not in self._cached_labels:
                self._cached_labels[space_name] = self._read_labels(space_name, space)
            labels = self._cached_labels[space_name]
        if part:
            assert isinstance(labels, Tensor)
            return columns.rating_classes(labels[:, space.aspects.index(part)], space.scale)
        return labels

    def _read_labels(self, name: str, space: LabelSpace) -> Tensor | LabelRows:
        column_chunks = [self.chunks(column) for column in label_columns(name, space)]
        for (shard, numbers), *chunks in zip(self._shards, *column_chunks, strict=True):
            file = self.reader.shard_file(shard)
            check_labels(name, space, chunks, file, lambda row, numbers=numbers: f"row {numbers[row]}")  # type: ignore[misc]
        if space.kind == "multi_label":
            rows, *unknown = (
                LabelRows.cat([columns.label_rows(chunk, space.n_classes) for chunk in column])
                for column in column_chunks
            )
            return replace(rows, unknown=unknown[0]) if unknown else rows
        if space.kind == "aspects":
            return torch.cat([columns.ratings(chunk, len(space.aspects)) for chunk in column_chunks[0]])
        return torch.cat([columns.single_classes(chunk) for chunk in column_chunks[0]])


def check_labels(
    name: str, space: LabelSpace, read: Sequence[Any], file: str, place: Callable[[int], str]
) -> None:
    """Raises UserError for the first label that is outside the space, or both present and unknown in a row.

    `read` has a shard's Arrow columns that `label_columns` names. `file`, and `place`, which describes a row
    by its number in the shard, are for messages.
    """
    for key, column in zip(label_columns(name, space), read, strict=True):
        for row in np.flatnonzero(columns.bad_rows(column, space))[:1].tolist():
            problem, allowed = "class index outside the classes", f"0 to {space.n_classes - 1}"
            if space.kind == "aspects":
                problem, allowed = "rating outside the scale", ", ".join(f"{step:g}" for step in space.scale)
            value, problem = column[row].as_py(), f"{problem} at {place(row)}"
            raise UserError(problem, file=file, key=key, found=value, allowed=allowed)
    if space.unknown:
        known_E, unknown_E = (columns.label_rows(column, space.n_classes).cells().numpy() for column in read)
        for cell in np.intersect1d(known_E, unknown_E)[:1].tolist():
            row, label = divmod(cell, space.n_classes)
            problem, value = f"class both known and unknown at {place(row)}", space.classes[label]
            key = unknown_column(name)
            raise UserError(problem, file=file, key=key, found=value, allowed="one of the two")


def _has_any(labels: Tensor | LabelRows, classes: tuple[int, ...]) -> NDArray[np.bool_]:
    """Returns a mask (N,) of the rows that have any of the classes."""
    class_indices = torch.tensor(classes)
    if isinstance(labels, Tensor):
        return torch.isin(labels, class_indices).numpy()
    return labels.only(class_indices).counts().numpy() > 0


@dataclass(frozen=True, eq=False)
class Split:
    """Rows of one split: all of them, or some that `take` or a subset chose.

    Attributes:
        whole: All rows of the split.
        index: The chosen rows, as indices (N,) int64 into `whole`; None for all rows in order.
        changed: Maps label spaces that noise has changed to their labels in the whole split.
    """

    whole: SplitRows
    index: Tensor | None = None
    changed: Mapping[str, Tensor | LabelRows] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.whole.rows) if self.index is None else len(self.index)

    @property
    def name(self) -> str:
        """The name of the split: `train`, `validation` or `test`."""
        return self.whole.name

    @property
    def info(self) -> DatasetInfo:
        """The content of `dataset.json`."""
        return self.whole.reader.info

    @property
    def fingerprint(self) -> str:
        """A text that identifies these rows of this data set (not changed labels), for the keys of caches."""
        is_part = self.index is not None or self.is_redrawn
        rows_hash = hashlib.sha256(self.rows.numpy().tobytes()).hexdigest()[:16] if is_part else ""
        selection = "unseen" if self.whole.unseen else "all"
        return f"{self.info.stored_fingerprint}-{self.name}-{rows_hash or selection}"

    @property
    def is_redrawn(self) -> bool:
        """Whether a validation seed decides which rows the split has."""
        return self.info.validation_seed is not None and self.name != "test"

    @property
    def rows(self) -> Tensor:
        """The row numbers (N,) int64 in the data set, counted through all shards in order."""
        return self.whole.rows if self.index is None else self.whole.rows[self.index]

    @property
    def ids(self) -> list[str]:
        """The ids of the rows."""
        return self._select(self.whole.ids)

    def id_column(self, rows: range) -> Any:
        """Returns the ids of a range of the rows as an Arrow column, which is not kept in memory."""
        column = pa.chunked_array([chunk for part in self.whole.chunks("id") for chunk in part.chunks])
        index = slice(rows.start, rows.stop)
        return column[index] if self.index is None else column.take(self.index[index].numpy())

    def groups(self) -> list[str]:
        """Returns the group of each row; only a data set with `grouped` has them."""
        return self._select(self.whole.strings(GROUP))

    def texts(self) -> list[str]:
        """Returns the texts of the rows. Raises UserError unless the rows are texts."""
        self._require_modality("text")
        return self._select(self.whole.strings("text"))

    def images(self) -> ImageColumn:
        """Returns the encoded images of the rows, read on demand. Raises UserError unless rows are images."""
        self._require_modality("image")
        return ImageColumn(self.whole.reader, self.rows)

    def vectors(self) -> NDArray[np.float32]:
        """Returns the vectors (N, F) float32 of the rows. Raises UserError unless the rows are vectors."""
        self._require_modality("vectors")
        values = np.concatenate([columns.vectors(chunk) for chunk in self.whole.chunks("vectors")])
        return values if self.index is None else values[self.index.numpy()]

    def labels(self, name: str) -> Tensor | LabelRows:
        """Labels of the rows in a label space, an aspect (`ratings.value`) or a level (`path.section`).

        Returns:
            For a single space, an aspect or a single-label level: classes (N,) int64, -1 if missing. For a
            multi-label space or level: `LabelRows` with their unknown entries. For aspects: ratings (N, A)
            float32, 0 if missing. For a hierarchy: classes (N, H) int64, coarse first, -1 if missing; for a
            hierarchy of multi-label levels: `LabelRows` over the classes of all levels.

        Raises:
            UserError: For an unknown name, and for a label that the space does not have.
        """
        self.info.space(name)
        labels = self.whole.labels(name, self.changed)
        return labels if self.index is None else labels[self.index]

    def place(self, row: int) -> tuple[str, int]:
        """Returns the shard file that has a row of this split, and the row's number in it, for messages."""
        return self.whole.reader.place_of(int(self.rows[row]))

    def take(self, indices: Tensor) -> Split:
        """Selects the rows at `indices` (int64, into this split), in that order."""
        index = indices if self.index is None else self.index[indices]
        return replace(self, index=index)

    def _select(self, values: list[str]) -> list[str]:
        return values if self.index is None else [values[i] for i in self.index.tolist()]

    def _require_modality(self, modality: str) -> None:
        if self.info.modality != modality:
            problem, place = f"{self.info.name} has no {plural(modality)}", self.whole.reader.place
            raise UserError(problem, file=place, found=self.info.modality)
