"""Sparse label rows, shared by data, losses and evaluation. The module needs no package but torch.

Shapes: B rows, L labels, N stored entries.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise

import torch
from torch import Tensor


@dataclass(frozen=True, eq=False)
class LabelRows:
    """Multi-hot label rows in compressed sparse row (CSR) form, which need no dense (B, L) matrix.

    `offsets` (B + 1) and `columns` (N) are int64 on one device; row b holds the labels
    `columns[offsets[b]:offsets[b + 1]]`, ascending and without repeats. `width` is L. For rows over all
    classes of a hierarchy, `levels` has the number of columns of each level, the coarsest level first.
    `on_host` is a copy of `offsets` in the host's memory, kept for rows that were moved from there to a
    device. `unknown` holds the entries (row, label) for which it is not known whether the row has the label;
    none of them is in `columns`. It is None where every entry is known.
    """

    offsets: Tensor
    columns: Tensor
    width: int
    levels: tuple[int, ...] = ()
    on_host: Tensor | None = None
    unknown: LabelRows | None = None

    @classmethod
    def from_lists(cls, rows: Sequence[Sequence[int]], width: int) -> LabelRows:
        """Builds rows from the label indices of each row.

        Raises ValueError for an index outside 0..L-1, and for floating-point numbers and booleans.
        """
        # Of equal numbers of a tensor a set keeps each.
        sorted_rows = [sorted(set(row.tolist() if isinstance(row, Tensor) else row)) for row in rows]
        if any(row and not (0 <= row[0] and row[-1] < width) for row in sorted_rows):
            raise ValueError(f"label index outside 0..{width - 1}")
        counts = torch.tensor([0, *(len(row) for row in sorted_rows)], dtype=torch.int64)
        columns = torch.tensor([c for row in sorted_rows for c in row])
        if len(columns) and (columns.is_floating_point() or columns.dtype == torch.bool):
            raise ValueError(f"label indices must be integers; found: {columns.dtype}")
        return cls(counts.cumsum(0), columns.long(), width)

    @classmethod
    def from_dense(cls, y_BL: Tensor) -> LabelRows:
        """Builds rows from a dense (B, L) matrix, in which every non-zero entry is a label.

        Raises ValueError for anything but a dense tensor (B, L), and for negative entries and NaN.
        """
        if not isinstance(y_BL, Tensor) or y_BL.ndim != 2 or y_BL.layout != torch.strided:
            detail = f"{tuple(y_BL.shape)} {y_BL.layout}" if isinstance(y_BL, Tensor) else type(y_BL).__name__
            raise ValueError(f"label rows are built from a dense tensor (B, L); found: {detail}")
        if not bool((y_BL >= 0).all()):  # False for NaN, too
            raise ValueError("label entries must be 0 or more; unknown ones are given as unknown=LabelRows")
        row_N, column_N = y_BL.nonzero(as_tuple=True)
        counts = torch.bincount(row_N, minlength=len(y_BL))
        return cls(_offsets(counts), column_N, y_BL.shape[1])

    @classmethod
    def from_classes(cls, class_B: Tensor, width: int) -> LabelRows:
        """Builds one-hot rows from class indices (B,); -1, a missing class, gives an empty row.

        Raises ValueError for anything but integers (B,), and for an index above L - 1 or below -1; on a GPU
        the indices are not checked.
        """
        if class_B.ndim != 1 or class_B.is_floating_point() or class_B.dtype == torch.bool:
            raise ValueError(f"classes must be integers (B,); found: {tuple(class_B.shape)} {class_B.dtype}")
        class_B = class_B.long()
        if class_B.device.type == "cpu" and bool(((class_B >= width) | (class_B < -1)).any()):
            raise ValueError(f"class index outside -1..{width - 1}")
        known_B = class_B >= 0
        return cls(_offsets(known_B.long()), class_B[known_B], width)

    @classmethod
    def of_levels(cls, parts: Sequence[LabelRows]) -> LabelRows:
        """Builds rows over all classes of a hierarchy from the rows of each level (B, L_l), coarsest first.

        A row may have labels on several paths. At every level a row must have the parents of its labels at
        the next finer level; this is not checked.
        """
        levels = tuple(part.width for part in parts)
        starts = accumulate(levels, initial=0)
        column_N = torch.cat([part.columns + start for part, start in zip(parts, starts, strict=False)])
        order_N = torch.cat([part.row_index() for part in parts]).argsort(stable=True)
        counts = torch.stack([part.counts() for part in parts]).sum(0)
        return cls(_offsets(counts), column_N[order_N], sum(levels), levels)

    @classmethod
    def cat(cls, parts: Sequence[LabelRows]) -> LabelRows:
        """Concatenates the rows of several parts. Raises ValueError for parts of different widths."""
        if len(widths := {part.width for part in parts}) != 1:
            raise ValueError(f"rows of different widths: {sorted(widths)}")
        counts = torch.cat([part.counts() for part in parts])
        columns = torch.cat([part.columns for part in parts])
        unknown = None
        if any(part.unknown is not None for part in parts):
            unknown = LabelRows.cat([part.unknown or part.without_labels() for part in parts])
        return LabelRows(_offsets(counts), columns, parts[0].width, parts[0].levels, unknown=unknown)

    def without_labels(self) -> LabelRows:
        """Returns rows without labels, as many as these."""
        return LabelRows(torch.zeros_like(self.offsets), self.columns[:0], self.width, self.levels)

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, rows: Tensor) -> LabelRows:
        return self.take(rows)

    @property
    def device(self) -> torch.device:
        """The device of the rows."""
        return self.offsets.device

    def counts(self) -> Tensor:
        """Returns the number of labels of each row (B,), int64."""
        return self.offsets.diff()

    def row_index(self) -> Tensor:
        """Returns the row number of every stored entry (N,), int64."""
        return torch.repeat_interleave(self.counts(), output_size=len(self.columns))

    def cells(self) -> Tensor:
        """Returns the index row * L + label of each stored entry (N,) in the flat dense matrix, ascending."""
        return self.row_index() * self.width + self.columns

    def dense(self, dtype: torch.dtype = torch.float32) -> Tensor:
        """Returns the (B, L) matrix of zeros and ones."""
        y_BL = torch.zeros(len(self), self.width, dtype=dtype, device=self.device)
        y_BL.view(-1).index_fill_(0, self.cells(), 1)  # assigning a number by index would make a GPU wait
        return y_BL

    def known(self) -> Tensor | None:
        """Returns a mask (B, L), bool, which is true for known entries; None where all entries are known."""
        if self.unknown is None or not len(self.unknown.columns):
            return None
        return ~self.unknown.dense(torch.bool)

    def without_unknown(self) -> LabelRows:
        """Returns the rows without `unknown`: unknown entries then count as absent labels."""
        return self if self.unknown is None else replace(self, unknown=None)

    def take(self, rows: Tensor) -> LabelRows:
        """Selects rows by their numbers (int64, repeats allowed), in the given order.

        Raises ValueError for a single number, and for a matrix of numbers.
        """
        counts = self.counts()[rows]
        if counts.ndim != 1:
            raise ValueError(f"rows are selected by row numbers (N,); found: numbers {tuple(counts.shape)}")
        offsets = _offsets(counts)
        total = int(offsets[-1])
        shifts = torch.repeat_interleave(self.offsets[:-1][rows] - offsets[:-1], counts, output_size=total)
        columns = self.columns[shifts + torch.arange(total, device=self.device)]
        unknown = None if self.unknown is None else self.unknown.take(rows)
        return LabelRows(offsets, columns, self.width, self.levels, unknown=unknown)

    def only(self, columns: Tensor) -> LabelRows:
        """Keeps only the labels in `columns` (int64, ascending) and renumbers them from 0 in that order."""
        kept_N = torch.isin(self.columns, columns)
        counts = torch.bincount(self.row_index()[kept_N], minlength=len(self))
        number_N = torch.searchsorted(columns, self.columns[kept_N])
        unknown = None if self.unknown is None else self.unknown.only(columns)
        return LabelRows(_offsets(counts), number_N, len(columns), unknown=unknown)

    def to(self, device: torch.device | str) -> LabelRows:
        """Returns the rows on `device`: these rows if they are there, else a copy, asynchronous to a GPU."""
        device = torch.device(device)
        if self.device == device:
            return self
        on_host = self.offsets if self.device.type == "cpu" else None
        return replace(
            self,
            offsets=copy_to_device(self.offsets, device),
            columns=copy_to_device(self.columns, device),
            on_host=on_host,
            unknown=None if self.unknown is None else self.unknown.to(device),
        )

    @property
    def known_offsets(self) -> Tensor:
        """`on_host` if `to` has kept it, so that reading does not wait for a GPU; else `offsets`."""
        return self.offsets if self.on_host is None else self.on_host

    def part(self, rows: slice) -> tuple[Tensor, Tensor]:
        """Returns the labels of a slice of rows, concatenated, and the offsets of these rows within them."""
        offsets = self.offsets[rows.start : rows.stop + 1]
        if not len(offsets):
            return self.columns[:0], self.offsets[:1]
        known_offsets = self.known_offsets[rows.start : rows.stop + 1]
        return self.columns[int(known_offsets[0]) : int(known_offsets[-1])], offsets - offsets[0]

    def lists(self) -> list[list[int]]:
        """Returns a list of label indices for each row, for printing and for slow reference loops."""
        bounds = self.offsets.tolist()
        columns = self.columns.tolist()
        return [columns[a:b] for a, b in pairwise(bounds)]


def copy_to_device(value: Tensor, device: torch.device) -> Tensor:
    """Copies a tensor to a device. A copy from the host's memory to a GPU is asynchronous."""
    if device.type == "cuda" and value.device.type == "cpu":
        value = value.pin_memory()
    return value.to(device, non_blocking=device.type == "cuda")


def _offsets(counts: Tensor) -> Tensor:
    offsets = counts.new_zeros(len(counts) + 1)
    torch.cumsum(counts, 0, out=offsets[1:])
    return offsets
