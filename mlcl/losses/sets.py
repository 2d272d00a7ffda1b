"""Label sets, or ratings, of a batch's rows; the sizes of their intersections need no B x L matrix.

Shapes: B rows, L labels, A aspects, N stored labels, U distinct rows; I and J are slices of rows.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from mlcl.labels import LabelRows, copy_to_device
from mlcl.losses import tiling
from mlcl.losses.relations import LabelCounts

ROUNDING = 1e-12
"""The fraction of two sets' total size below which an intersection of ratings is a rounding error."""
FEW = 256
"""The largest number of labels for which the table of a tile has a column for every label.

With more labels, the table has only those that occur both in the rows and in the columns of the tile.
"""

PART = 128
"""The largest number of rows that a GPU adds up one after the other, see `group_bag`."""


@dataclass(frozen=True)
class LabelSets:
    """The label sets of B rows: `rows` as sparse rows, or `ratings` (B, A) float64 as graded sets.

    `sizes` (B,) float64 are the numbers |S| of labels, for ratings sum_a r_a.
    """

    rows: LabelRows | None
    ratings: Tensor | None
    sizes: Tensor

    @classmethod
    def of_rows(cls, rows: LabelRows) -> LabelSets:
        """Builds label sets from sparse label rows."""
        return cls(rows, None, rows.counts().double())

    @classmethod
    def of_ratings(cls, rating_BA: Tensor) -> LabelSets:
        """Builds graded sets from ratings (B, A) >= 0, where 0 is missing."""
        return cls(None, rating_BA, rating_BA.sum(1))

    def __len__(self) -> int:
        return len(self.sizes)

    def take(self, index: Tensor) -> LabelSets:
        """Returns the sets of the rows with the numbers `index`, in this order."""
        rows = None if self.rows is None else self.rows.take(index)
        return LabelSets(rows, None if self.ratings is None else self.ratings[index], self.sizes[index])

    def to(self, device: torch.device) -> LabelSets:
        """Returns a copy of the sets on a device, without waiting for it."""
        ratings = None if self.ratings is None else copy_to_device(self.ratings, device)
        return LabelSets(
            None if self.rows is None else self.rows.to(device), ratings, copy_to_device(self.sizes, device)
        )

    def drop_unique_labels(self) -> LabelSets:
        """Returns the sets without labels that only one row has; `sizes` still count these labels."""
        if self.rows is None:
            return self
        kept_L = torch.bincount(self.rows.columns, minlength=self.rows.width) > 1
        number_L = kept_L.cumsum(0) - 1
        kept_N = kept_L[self.rows.columns]
        offset_N = F.pad(kept_N.cumsum(0), (1, 0))
        rows = LabelRows(offset_N[self.rows.offsets], number_L[self.rows.columns[kept_N]], int(kept_L.sum()))
        return LabelSets(rows, None, self.sizes)

    def count_shared(self, rows: slice, cols: slice, dtype: torch.dtype) -> Tensor:
        """Returns |S & T| (I, J), for ratings sum_a min(r_a, t_a) in float64, exact for whole ratings.

        For a row with itself it is the row's `sizes`, also after `drop_unique_labels`.
        """
        if self.ratings is not None:
            total_IJ = self.sizes[rows, None] + self.sizes[cols]
            shared_IJ = (total_IJ - torch.cdist(self.ratings[rows], self.ratings[cols], p=1)) / 2
            return shared_IJ.masked_fill_(shared_IJ <= ROUNDING * total_IJ, 0)
        assert self.rows is not None
        shared_IJ = cross(self.rows, rows, cols, dtype)
        overlap = range(max(rows.start, cols.start), min(rows.stop, cols.stop))
        if overlap:
            row = torch.arange(overlap.start, overlap.stop, device=shared_IJ.device)
            shared_IJ[row - rows.start, row - cols.start] = self.sizes[row].to(dtype)
        return shared_IJ

    def counts(self, rows: slice, cols: slice, dtype: torch.dtype) -> LabelCounts:
        """Returns the sizes of a tile's sets and of their intersections, in the dtype of `count_shared`."""
        shared_IJ = self.count_shared(rows, cols, dtype)
        sizes = self.sizes.to(shared_IJ.dtype)
        return LabelCounts(shared_IJ, sizes[rows, None], sizes[None, cols])

    def find_distinct(self, n_queued: int = 0) -> tuple[LabelSets, Tensor]:
        """Returns the U distinct sets in order of first occurrence, and the index (B,) of each row's set.

        The last `n_queued` rows may share sets among themselves, but not with the rows before them.
        """
        hash_B = self._hashes()
        hash_B[len(self) - n_queued :] += 1
        same_B = torch.unique(hash_B, return_inverse=True)[1]
        first_U = first_rows(same_B)
        if not bool(self.equal_to(first_U[same_B]).all()):
            same_B, first_U = self._group_exactly(n_queued)
        order_U = first_U.argsort()
        index_U = torch.empty_like(order_U)
        index_U[order_U] = torch.arange(len(order_U), device=order_U.device)
        return self.take(first_U[order_U]), index_U[same_B]

    def equal_to(self, index_B: Tensor) -> Tensor:
        """Whether the set of each row b equals that of row `index_B[b]`, as bool (B,).

        If the two sets of any pair differ in size, only sizes are compared, for all pairs.
        """
        if self.ratings is not None:
            return (self.ratings == self.ratings[index_B]).all(1)
        assert self.rows is not None
        other = self.rows.take(index_B)
        same_B = self.rows.counts() == other.counts()
        if bool(same_B.all()):
            differs_N = (self.rows.columns != other.columns).to(torch.int64)
            same_B &= segment_sums(differs_N, self.rows.offsets) == 0
        return same_B

    def _hashes(self) -> Tensor:
        if self.rows is not None:
            return segment_sums(mix(self.rows.columns + 1), self.rows.offsets)
        assert self.ratings is not None
        aspect_A = torch.arange(1, self.ratings.shape[1] + 1, device=self.ratings.device)
        return mix(self.ratings.view(torch.int64) + mix(aspect_A)).sum(1)

    def _group_exactly(self, queued: int) -> tuple[Tensor, Tensor]:
        """Returns each row's group (B,) and the groups' first rows (U,), even if unequal sets hash alike."""
        lists = [] if self.ratings is None else self.ratings.tolist()
        lists = lists if self.rows is None else self.rows.lists()
        keys = [(row >= len(self) - queued, *labels) for row, labels in enumerate(lists)]
        names = {key: number for number, key in enumerate(dict.fromkeys(keys))}
        same_B = torch.tensor([names[key] for key in keys], device=self.sizes.device)
        return same_B, first_rows(same_B)


def cross(
    labels: LabelRows, rows: slice, cols: slice, dtype: torch.dtype, weights_N: Tensor | None = None
) -> Tensor:
    """Returns, for each pair (I, J), the sum of row i's weights, by default 1, over labels of both rows."""
    column_I, offsets_I = labels.part(rows)
    column_J, offsets_J = labels.part(cols)
    width = labels.width
    if width > FEW:
        in_both_L = column_I.new_zeros(width, dtype=torch.bool).index_fill_(0, column_I, True)
        in_both_L &= torch.zeros_like(in_both_L).index_fill_(0, column_J, True)
        number_L = in_both_L.cumsum(0) - 1
        if tiling.is_host(in_both_L.device):
            width = int(in_both_L.sum())
            kept_I, kept_J = in_both_L[column_I], in_both_L[column_J]
            column_I, offsets_I = number_L[column_I[kept_I]], F.pad(kept_I.cumsum(0), (1, 0))[offsets_I]
            column_J, offsets_J = number_L[column_J[kept_J]], F.pad(kept_J.cumsum(0), (1, 0))[offsets_J]
            weights_N = None if weights_N is None else weights_N[kept_I]
        else:
            # The number of common labels is not read: the host would wait. Others share a last row of zeros.
            width = min(width, len(column_I), len(column_J))
            number_L = torch.where(in_both_L, number_L, width)
            column_I, column_J = number_L[column_I], number_L[column_J]
    count = cols.stop - cols.start
    row_J = torch.repeat_interleave(offsets_J.diff(), output_size=len(column_J))
    table_LJ = torch.zeros(width + 1, count, dtype=dtype, device=column_J.device)
    # `table_LJ[column_J, row_J] = 1` would wait until the number is copied to a GPU.
    table_LJ.view(-1).index_fill_(0, column_J * count + row_J, 1)
    table_LJ[width] = 0
    return bag(column_I, offsets_I, table_LJ, weights_N)


def bag(columns: Tensor, offsets: Tensor, table: Tensor, weights_N: Tensor | None = None) -> Tensor:
    """Returns, for each label set, the (weighted) sum of `table`'s rows with the numbers of its labels."""
    sums: Tensor = F.embedding_bag(
        columns, table, offsets, mode="sum", include_last_offset=True, per_sample_weights=weights_N
    )
    return sums


def group_bag(row_M: Tensor, offsets: Tensor, table: Tensor, weights_M: Tensor | None = None) -> Tensor:
    """Computes what `bag` does, quickly also for groups that are much larger than the others.

    A GPU adds up a group's rows one after the other, so it first adds up parts of at most PART rows.
    """
    if tiling.is_host(table.device):
        return bag(row_M, offsets, table, weights_M)
    parts_L = (offsets.diff() + PART - 1) // PART
    first_L = F.pad(parts_L.cumsum(0), (1, 0))
    part_K = torch.arange(len(row_M) // PART + len(parts_L), device=table.device)
    # Empty parts follow the last part, because the host does not know the number of parts.
    group_K = torch.searchsorted(first_L, part_K, right=True) - 1
    start_K = (offsets[group_K] + (part_K - first_L[group_K]) * PART).clamp(max=len(row_M))
    sums_KD = bag(row_M, F.pad(start_K, (0, 1), value=len(row_M)), table, weights_M)
    return bag(part_K, first_L, sums_KD)


def sort_by_label(rows: LabelRows) -> tuple[Tensor, Tensor, Tensor]:
    """Sorts stored entries by label; returns the order (N,), sorted rows (N,) and label offsets (L + 1,)."""
    order_M = rows.columns.argsort(stable=True)
    if tiling.is_host(rows.device):
        count_L = torch.bincount(rows.columns, minlength=rows.width)
    else:  # the host would wait for bincount
        count_L = torch.zeros(rows.width, dtype=torch.int64, device=rows.device)
        count_L.scatter_add_(0, rows.columns, torch.ones_like(rows.columns))
    return order_M, rows.row_index()[order_M], F.pad(count_L.cumsum(0), (1, 0))


def segment_sums(value_N: Tensor, offsets: Tensor) -> Tensor:
    """Returns the sum of each row's integer entries; overflow of the cumulative sums does no harm."""
    return F.pad(value_N.cumsum(0), (1, 0))[offsets].diff()


def first_rows(group_B: Tensor) -> Tensor:
    """Returns the first row of each group; groups are numbered from 0 without gaps."""
    count = int(group_B.max()) + 1 if len(group_B) else 0
    row_B = torch.arange(len(group_B), device=group_B.device)
    return row_B.new_full((count,), len(group_B)).scatter_reduce(0, group_B, row_B, "amin")


def mix(value: Tensor) -> Tensor:
    """Hashes 64-bit integers with MurmurHash3's finaliser; sums of the hashes nearly always identify sets."""
    for factor in (-49064778989728563, -4265267296055464877):
        value = (value ^ ((value >> 33) & 0x7FFFFFFF)) * factor
    return value ^ ((value >> 33) & 0x7FFFFFFF)
