"""Sparse label rows, shared by data, losses and evaluation. Needs torch alone.

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
    """Multi-hot label rows in compressed sparse row form, from disk to loss without a dense B x L.

    `offsets` (B + 1) and `columns` (N) are int64 on one device; row b holds the labels
    `columns[offsets[b]:offsets[b + 1]]`, ascending and without repeats. `width` is L. Of rows of nodes of
    a hierarchy, `levels` says how many of the columns each level has, the coarsest level first. `on_host`
    are the offsets in the host's memory, of rows that were moved from there to a device. `unknown` are the
    entries, none of them a label, of which the rows do not tell whether they have them; None where a row
    tells all.
    """

    offsets: Tensor
    columns: Tensor
    width: int
    levels: tuple[int, ...] = ()
    on_host: Tensor | None = None
    unknown: LabelRows | None = None

    @classmethod
    def from_lists(cls, rows: Sequence[Sequence[int]], width: int) -> LabelRows:
        """Rows from a sequence of label indices for each. Raises ValueError for an index outside 0..L-1."""
        ordered = [sorted(set(row)) for row in rows]
        if any(row and not (0 <= row[0] and row[-1] < width) for row in ordered):
            raise ValueError(f"label index outside 0..{width - 1}")
        counts = torch.tensor([0, *(len(row) for row in ordered)], dtype=torch.int64)
        columns = torch.tensor([c for row in ordered for c in row], dtype=torch.int64)
        return cls(counts.cumsum(0), columns, width)

    @classmethod
    def from_dense(cls, y_BL: Tensor) -> LabelRows:
        """Rows from a dense (B, L) matrix; every non-zero entry is a label."""
        row_N, column_N = y_BL.nonzero(as_tuple=True)
        counts = torch.bincount(row_N, minlength=len(y_BL))
        return cls(_offsets(counts), column_N, y_BL.shape[1])

    @classmethod
    def from_classes(cls, class_B: Tensor, width: int) -> LabelRows:
        """One-hot rows from class indices (B,); -1 (missing) becomes an empty row."""
        known_B = class_B >= 0
        return cls(_offsets(known_B.long()), class_B[known_B].long(), width)

    @classmethod
    def of_levels(cls, parts: Sequence[LabelRows]) -> LabelRows:
        """Rows of nodes of a hierarchy, from the label rows of each level (B, L_l), the coarsest level first.

        A row may have several paths. The rows of a level must have the parents of the next finer labels.
        """
        levels = tuple(part.width for part in parts)
        first = accumulate(levels, initial=0)
        column_N = torch.cat([part.columns + start for part, start in zip(parts, first, strict=False)])
        order_N = torch.cat([part.row_index() for part in parts]).argsort(stable=True)
        counts = torch.stack([part.counts() for part in parts]).sum(0)
        return cls(_offsets(counts), column_N[order_N], sum(levels), levels)

    @classmethod
    def cat(cls, parts: Sequence[LabelRows]) -> LabelRows:
        """Rows of several parts, one after the other; all must have the same width."""
        counts = torch.cat([part.counts() for part in parts])
        columns = torch.cat([part.columns for part in parts])
        unknown = [part.unknown for part in parts if part.unknown is not None]
        return LabelRows(
            _offsets(counts),
            columns,
            parts[0].width,
            parts[0].levels,
            unknown=LabelRows.cat(unknown) if unknown else None,
        )

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, rows: Tensor) -> LabelRows:
        return self.take(rows)

    @property
    def device(self) -> torch.device:
        """The device of the rows."""
        return self.offsets.device

    def counts(self) -> Tensor:
        """Labels per row (B,), int64."""
        return self.offsets.diff()

    def row_index(self) -> Tensor:
        """The row of every stored entry (N,), int64."""
        return torch.repeat_interleave(self.counts(), output_size=len(self.columns))

    def cells(self) -> Tensor:
        """The index row * L + label of every stored entry (N,) in the flat dense matrix, ascending int64."""
        return self.row_index() * self.width + self.columns

    def dense(self, dtype: torch.dtype = torch.float32) -> Tensor:
        """The (B, L) matrix of zeros and ones."""
        y_BL = torch.zeros(len(self), self.width, dtype=dtype, device=self.device)
        y_BL.view(-1).index_fill_(0, self.cells(), 1)  # a GPU waits where a number is written by index
        return y_BL

    def known(self) -> Tensor | None:
        """Mask (B, L) bool of known entries; None where all are known."""
        if self.unknown is None or not len(self.unknown.columns):
            return None
        return ~self.unknown.dense(torch.bool)

    def without_unknown(self) -> LabelRows:
        """The rows with unknown entries counted as absent."""
        return self if self.unknown is None else replace(self, unknown=None)

    def take(self, rows: Tensor) -> LabelRows:
        """The given rows (int64 indices, repeats allowed), in that order."""
        counts = self.counts()[rows]
        offsets = _offsets(counts)
        total = int(offsets[-1])
        first = torch.repeat_interleave(self.offsets[:-1][rows] - offsets[:-1], counts, output_size=total)
        columns = self.columns[first + torch.arange(total, device=self.device)]
        unknown = None if self.unknown is None else self.unknown.take(rows)
        return LabelRows(offsets, columns, self.width, self.levels, unknown=unknown)

    def only(self, columns: Tensor) -> LabelRows:
        """The rows with these labels alone (int64, ascending), which are numbered anew in their order."""
        kept_N = torch.isin(self.columns, columns)
        counts = torch.bincount(self.row_index()[kept_N], minlength=len(self))
        number_N = torch.searchsorted(columns, self.columns[kept_N])
        unknown = None if self.unknown is None else self.unknown.only(columns)
        return LabelRows(_offsets(counts), number_N, len(columns), unknown=unknown)

    def to(self, device: torch.device | str) -> LabelRows:
        """A copy on another device, for which the host does not wait."""
        device = torch.device(device)
        if self.device == device:
            return self
        on_host = self.offsets if self.device.type == "cpu" else None
        return replace(
            self,
            offsets=sent(self.offsets, device),
            columns=sent(self.columns, device),
            on_host=on_host,
            unknown=None if self.unknown is None else self.unknown.to(device),
        )

    @property
    def known_offsets(self) -> Tensor:
        """The offsets in the host's memory if the rows were moved from there, else on the device."""
        return self.offsets if self.on_host is None else self.on_host

    def part(self, rows: slice) -> tuple[Tensor, Tensor]:
        """The labels of a slice of rows, and the offset of each of these rows in them."""
        offsets = self.offsets[rows.start : rows.stop + 1]
        if not len(offsets):
            return self.columns[:0], self.offsets[:1]
        known = self.known_offsets[rows.start : rows.stop + 1]
        return self.columns[int(known[0]) : int(known[-1])], offsets - offsets[0]

    def lists(self) -> list[list[int]]:
        """A list of label indices for each row, for printing and for slow reference loops."""
        bounds = self.offsets.tolist()
        columns = self.columns.tolist()
        return [columns[a:b] for a, b in pairwise(bounds)]


def sent(value: Tensor, device: torch.device) -> Tensor:
    """Copies a tensor to a device; a copy from the host's memory to a GPU is not waited for."""
    if device.type == "cuda" and value.device.type == "cpu":
        value = value.pin_memory()
    return value.to(device, non_blocking=device.type == "cuda")


def _offsets(counts: Tensor) -> Tensor:
    offsets = counts.new_zeros(len(counts) + 1)
    torch.cumsum(counts, 0, out=offsets[1:])
    return offsets
