"""Label sets, or ratings, of a batch's rows, and what pairs of them share, without a dense B x L matrix.

Shapes: B rows, L labels, A aspects, N stored labels, U distinct rows; I and J are slices of rows. In
`DistinctSets`: N own rows, U distinct sets (the first V of them in own rows), D embedding.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from mlcl.labels import LabelRows, sent
from mlcl.losses import tiling
from mlcl.losses.relations import LabelCounts
from mlcl.losses.tiling import tiles

FEW = 256
"""Labels up to which a tile's table has them all; above, it has those that both sides of the tile have."""


@dataclass(frozen=True)
class LabelSets:
    """The label sets of B rows: `rows` as sparse rows, or `ratings` (B, A) float64 as graded sets.

    `sizes` (B,) float64 are |S|, for ratings sum_a r_a.
    """

    rows: LabelRows | None
    ratings: Tensor | None
    sizes: Tensor

    @classmethod
    def of_rows(cls, rows: LabelRows) -> LabelSets:
        """From sparse label rows."""
        return cls(rows, None, rows.counts().double())

    @classmethod
    def of_ratings(cls, rating_BA: Tensor) -> LabelSets:
        """From ratings >= 0, 0 = missing."""
        return cls(None, rating_BA, rating_BA.sum(1))

    def __len__(self) -> int:
        return len(self.sizes)

    def take(self, index: Tensor) -> LabelSets:
        """The given rows, in that order."""
        rows = None if self.rows is None else self.rows.take(index)
        return LabelSets(rows, None if self.ratings is None else self.ratings[index], self.sizes[index])

    def to(self, device: torch.device) -> LabelSets:
        """The same on a device, for which the host does not wait."""
        ratings = None if self.ratings is None else sent(self.ratings, device)
        return LabelSets(
            None if self.rows is None else self.rows.to(device), ratings, sent(self.sizes, device)
        )

    def repeated(self) -> LabelSets:
        """The same rows without the labels that only one of them has: no pair shares these."""
        if self.rows is None:
            return self
        kept_L = torch.bincount(self.rows.columns, minlength=self.rows.width) > 1
        number_L = kept_L.cumsum(0) - 1
        kept_N = kept_L[self.rows.columns]
        before_N = F.pad(kept_N.cumsum(0), (1, 0))
        rows = LabelRows(before_N[self.rows.offsets], number_L[self.rows.columns[kept_N]], int(kept_L.sum()))
        return LabelSets(rows, None, self.sizes)

    def shared(self, rows: slice, cols: slice, dtype: torch.dtype) -> Tensor:
        """|S & T| (I, J), for ratings sum_a min(r_a, t_a), which float64 holds exactly for whole ratings.

        A row shares all of its `size` with itself, whatever labels `repeated` has left it.
        """
        if self.ratings is not None:
            total_IJ = self.sizes[rows, None] + self.sizes[cols]
            return (total_IJ - torch.cdist(self.ratings[rows], self.ratings[cols], p=1)) / 2
        assert self.rows is not None
        shared_IJ = cross(self.rows, rows, cols, dtype)
        both = range(max(rows.start, cols.start), min(rows.stop, cols.stop))
        if both:
            row = torch.arange(both.start, both.stop, device=shared_IJ.device)
            shared_IJ[row - rows.start, row - cols.start] = self.sizes[row].to(dtype)
        return shared_IJ

    def counts(self, rows: slice, cols: slice, dtype: torch.dtype) -> LabelCounts:
        """What the pairs of a tile share, and the sizes of both, in the dtype of `shared`."""
        shared_IJ = self.shared(rows, cols, dtype)
        sizes = self.sizes.to(shared_IJ.dtype)
        return LabelCounts(shared_IJ, sizes[rows, None], sizes[None, cols])

    def distinct(self) -> tuple[LabelSets, Tensor]:
        """The U distinct rows in the order in which they first occur, and which of them (B,) each row is."""
        same_B = torch.unique(self._hashes(), return_inverse=True)[1]
        first_U = first_rows(same_B)
        if not bool(self.equal_to(first_U[same_B]).all()):
            same_B, first_U = self._distinct_slowly()
        order_U = first_U.argsort()
        place_U = torch.empty_like(order_U)
        place_U[order_U] = torch.arange(len(order_U), device=order_U.device)
        return self.take(first_U[order_U]), place_U[same_B]

    def equal_to(self, index_B: Tensor) -> Tensor:
        """Whether each row equals the row that `index_B` (B,) names, as bool (B,)."""
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
        if self.rows is None:
            rating_BA = self._graded()
            aspect_A = torch.arange(1, rating_BA.shape[1] + 1, device=rating_BA.device)
            return _mix(rating_BA.view(torch.int64) + _mix(aspect_A)).sum(1)
        return segment_sums(_mix(self.rows.columns + 1), self.rows.offsets)

    def _graded(self) -> Tensor:
        assert self.ratings is not None
        return self.ratings

    def _distinct_slowly(self) -> tuple[Tensor, Tensor]:
        """The same by comparison: for the batch in which two different rows have one hash."""
        lists = self.rows.lists() if self.rows is not None else self._graded().tolist()
        keys = [tuple(row) for row in lists]
        names = {key: number for number, key in enumerate(dict.fromkeys(keys))}
        same_B = torch.tensor([names[key] for key in keys], device=self.sizes.device)
        return same_B, first_rows(same_B)


class DistinctSets:
    """`sets` are the U distinct ones, `rows` (U,) how many rows have each, in the dtype of the embeddings.

    `place` (B,) is the set of each row, `own_place` (N,) that of the own rows, which have the first `own`.
    They are found where the labels are, and sent to `device`, with `repeated`, what pairs of sets can share.
    """

    def __init__(
        self, sets: LabelSets, own_rows: int, dtype: torch.dtype, device: torch.device | None = None
    ) -> None:
        device = device or sets.sizes.device
        distinct, place = sets.distinct()
        self.own = int(place[:own_rows].max()) + 1 if own_rows else 0
        self.rows = sent(torch.bincount(place, minlength=len(distinct)).to(dtype), device)
        self.place, self.sets = sent(place, device), distinct.to(device)
        self.own_place = self.place[:own_rows]
        self.repeated = distinct.repeated().to(device)

    def attract(self, both: Callable[[slice, slice], Tensor], z_BD: Tensor) -> Tensor:
        """The own rows of (W + W^T) Z, (N, D). `both` gives W_uv + W_vu of a tile of sets, to be changed."""
        group_UD = z_BD.new_zeros(len(self.sets), z_BD.shape[1]).index_add_(0, self.place, z_BD)
        sum_VD = z_BD.new_zeros(self.own, z_BD.shape[1])
        itself_V = z_BD.new_zeros(self.own)
        for rows, cols, mirrored in tiles(z_BD.device, self.own, len(self.sets)):
            both_IJ = both(rows, cols)
            if rows == cols:
                # Apart from the others, of which it may be a multiple that would swallow them.
                itself_V[rows] = both_IJ.diagonal()
                both_IJ.fill_diagonal_(0)
            sum_VD[rows].addmm_(both_IJ, group_UD[cols])
            if mirrored:
                sum_VD[cols].addmm_(both_IJ.T, group_UD[rows])
        place_N = self.own_place
        return sum_VD[place_N] + itself_V[place_N, None] * (group_UD[place_N] - z_BD[: len(place_N)])


def cross(
    labels: LabelRows, rows: slice, cols: slice, dtype: torch.dtype, weights_N: Tensor | None = None
) -> Tensor:
    """(A Y^T)_IJ: over the labels that rows i and j share the sum of i's `weights_N`, by default 1 (I, J)."""
    column_I, offsets_I = labels.part(rows)
    column_J, offsets_J = labels.part(cols)
    width = labels.width
    if width > FEW:
        in_both_L = column_I.new_zeros(width, dtype=torch.bool)
        in_both_L[column_I] = True
        in_both_L &= torch.zeros_like(in_both_L).index_fill_(0, column_J, True)
        number_L = in_both_L.cumsum(0) - 1
        if tiling.is_host(in_both_L.device):
            width = int(in_both_L.sum())
            kept_I, kept_J = in_both_L[column_I], in_both_L[column_J]
            column_I, offsets_I = number_L[column_I[kept_I]], F.pad(kept_I.cumsum(0), (1, 0))[offsets_I]
            column_J, offsets_J = number_L[column_J[kept_J]], F.pad(kept_J.cumsum(0), (1, 0))[offsets_J]
            weights_N = None if weights_N is None else weights_N[kept_I]
        else:
            # How many there are would be waited for. Labels of one side go to a last row of zeros.
            width = min(width, len(column_I), len(column_J))
            number_L = torch.where(in_both_L, number_L, width)
            column_I, column_J = number_L[column_I], number_L[column_J]
    row_J = torch.repeat_interleave(offsets_J.diff(), output_size=len(column_J))
    table_LJ = torch.zeros(width + 1, cols.stop - cols.start, dtype=dtype, device=column_J.device)
    table_LJ[column_J, row_J] = 1
    table_LJ[width] = 0
    return bag(column_I, offsets_I, table_LJ, weights_N)


def bag(columns: Tensor, offsets: Tensor, table: Tensor, weights_N: Tensor | None = None) -> Tensor:
    """For each row the (weighted) sum of the table's rows that its labels name."""
    answer: Tensor = F.embedding_bag(
        columns, table, offsets, mode="sum", include_last_offset=True, per_sample_weights=weights_N
    )
    return answer


def by_label(rows: LabelRows) -> tuple[Tensor, Tensor, Tensor]:
    """The stored labels ordered by label: that order, the row of each, and where each label's begin."""
    order_M = rows.columns.argsort(stable=True)
    if tiling.is_host(rows.device):
        count_L = torch.bincount(rows.columns, minlength=rows.width)
    else:  # bincount would be waited for
        count_L = torch.zeros(rows.width, dtype=torch.int64, device=rows.device)
        count_L.scatter_add_(0, rows.columns, torch.ones_like(rows.columns))
    return order_M, rows.row_index()[order_M], F.pad(count_L.cumsum(0), (1, 0))


def segment_sums(value_N: Tensor, offsets: Tensor) -> Tensor:
    """The sum of each row's entries, for integers, which wrap around alike in both."""
    return F.pad(value_N.cumsum(0), (1, 0))[offsets].diff()


def first_rows(group_B: Tensor) -> Tensor:
    """The first row of each group, for groups numbered from 0 without gaps."""
    count = int(group_B.max()) + 1 if len(group_B) else 0
    row_B = torch.arange(len(group_B), device=group_B.device)
    return row_B.new_full((count,), len(group_B)).scatter_reduce(0, group_B, row_B, "amin")


def _mix(value: Tensor) -> Tensor:
    """Spreads 64-bit integers, so that sums of them tell sets apart (the finaliser of MurmurHash3)."""
    for factor in (-49064778989728563, -4265267296055464877):
        value = (value ^ ((value >> 33) & 0x7FFFFFFF)) * factor
    return value ^ ((value >> 33) & 0x7FFFFFFF)
