"""Interfaces of the weights W in the tiled engine, which needs products with W but never the B x B matrix.

Shapes: N own rows (the first N of all), B rows of all processes, D embedding, L prototypes, U distinct sets
(the first V of them in own rows).
"""

from __future__ import annotations

import copy
from collections.abc import Callable

import torch
from torch import Tensor

from mlcl.labels import copy_to_device
from mlcl.losses.sets import LabelSets
from mlcl.losses.tiling import tiles

Number = float | Tensor
"""A float, or a tensor without dimensions on a device, whose value the host has not read."""
EXCLUDED = -1e30
"""The logit of a pair that is excluded: its exponential is 0 and, unlike with -inf, 0 times it is 0."""


class BatchRanks:
    """The processes that share a batch, and this process's own rows: the first rows, which are its anchors.

    All processes must make the same calls in the same order. This class is for one process that holds a batch
    alone, `batch.ManyRanks` for several processes. `size` is the number of processes, `own` that of own rows;
    `dtype` and `device` are those of the embeddings. A device of None stands for the labels' device. Labels
    may be in the host's memory although the embeddings are not, see `LossSpec.on_host`. The last `queued`
    rows of all are those of a queue: candidates of every anchor, but no anchors, whose rows of W are 0.
    """

    size = 1
    queued = 0

    def __init__(
        self, own: int = 0, dtype: torch.dtype = torch.float32, device: torch.device | None = None
    ) -> None:
        self.own, self.dtype, self.device = own, dtype, device

    def share(self, own_values: Tensor) -> Tensor:
        """Gathers values of own rows as `gather` does, and appends zeros for the rows of a queue."""
        rows = self.gather(own_values)
        return torch.cat([rows, rows.new_zeros(self.queued, *rows.shape[1:])]) if self.queued else rows

    def gather(self, own_values: Tensor) -> Tensor:
        """Gathers values (N, ...) of each process's own rows; returns those of all rows, own rows first."""
        return own_values

    def with_queue(self, queued: int) -> BatchRanks:
        """Returns a copy with `queued` rows of a queue behind the rows of all processes."""
        ranks = copy.copy(self)
        ranks.queued = queued
        return ranks

    def global_rows(self, row: Tensor) -> Tensor:
        """Converts row numbers of this process, own rows first, to numbers that all processes share."""
        return row

    def local_rows(self, row: Tensor) -> Tensor:
        """Converts numbers of `global_rows` back to row numbers of this process."""
        return row


class PairWeights:
    """The weights of the own anchors' pairs, which depend on labels alone.

    `row_sums` (N,) are R_i = sum_p W_ip; `constant` (N,) is added to the anchors' terms, None for 0.
    `repulsion` multiplies the exponentials of rows, not of prototypes, in the softmax's sum. `excludes` says
    that some rows are no candidates, see `excluded_pairs`. A `largest_factor` other than 1 says that the
    softmax multiplies logits by the `factors` of their pairs, which are positive and at most this number.
    """

    row_sums: Tensor
    constant: Tensor | None = None
    repulsion: float = 1.0
    excludes: bool = False
    largest_factor: float = 1.0

    @property
    def own_softmax(self) -> bool:
        """Whether the softmax excludes candidates or multiplies logits, so that no other loss shares it."""
        return self.excludes or self.largest_factor != 1

    def attract(self, z_BD: Tensor) -> Tensor:
        """Returns the own rows of (W + W^T) Z, (N, D).

        Weights that depend on embeddings have it in the object that `with_embeddings` returns; here it then
        raises NotImplementedError.
        """
        raise NotImplementedError("the weights follow from the embeddings: call with_embeddings first")

    def attract_queue(self, z_BD: Tensor, queue: slice) -> Tensor:
        """Returns sum_j W_ij z_j (N, D) of own rows i over the rows j of a queue, which are `queue` of Z."""
        only_BD = torch.zeros_like(z_BD)
        only_BD[queue] = z_BD[queue]
        return self.attract(only_BD)

    def attract_prototypes(self, z_BD: Tensor) -> Tensor:
        """Returns sum_i W_il z_i (L, D) over own rows i for each prototype l, which are Z's last rows."""
        raise NotImplementedError("this rule gives prototypes no weight")

    def symmetric_weights(self, rows: slice, cols: slice) -> Tensor:
        """Returns W_ij + W_ji of a tile of rows (I, J), 0 where i = j; used if similarities are distances."""
        raise NotImplementedError("this rule has no tiles of weights")

    def excluded_pairs(self, rows: slice, cols: slice) -> Tensor:
        """Whether pairs of a tile of rows are no candidates of each other (I, J); used if `excludes`."""
        raise NotImplementedError("this rule excludes no candidates")

    def factors(self, rows: slice, cols: slice) -> Tensor:
        """Returns the factors of the logits of a tile of rows in the softmax (I, J), equal for ij and ji."""
        raise NotImplementedError("this rule changes no logits")

    def has_positive(self) -> Tensor:
        """Whether each own anchor has a positive, as bool (N,); by default, a weight above 0."""
        return self.row_sums > 0

    def to(self, device: torch.device) -> PairWeights:
        """Moves all tensors of this object to a device, without waiting for it, and returns the object."""
        for name, value in vars(self).items():
            if isinstance(value, Tensor):
                setattr(self, name, copy_to_device(value, device))
        return self

    def with_embeddings(self, _z_BD: Tensor, _lse_N: Tensor, _ratio: Number) -> PairWeights:
        """Returns the weights for given embeddings.

        The logits are ratio z_i . z_p, and `_lse_N` is their logsumexp (N,) over an anchor's candidates,
        `EXCLUDED` for an anchor without candidates.
        Weights that depend on the labels alone return themselves.
        """
        return self


class DistinctSets:
    """The distinct label sets of a batch, computed on the labels' device and copied to `ranks.device`.

    `sets` are the U distinct sets, `reduced` these sets without labels that only one of them has. `rows`
    (U,) is the number of rows with each set, in the dtype of the embeddings. `index` (B,) is the index of
    each row's set, `own_index` (N,) that of each own row's set. The sets of own rows are the first `own`
    ones, those of all anchors the first `anchors`: a row of a queue never shares a set with an anchor.
    Without `merge` every row counts as a set of its own.
    """

    def __init__(self, sets: LabelSets, ranks: BatchRanks, *, merge: bool = True) -> None:
        own_rows, device = ranks.own, ranks.device or sets.sizes.device
        unmerged = sets, torch.arange(len(sets), device=sets.sizes.device)
        distinct_sets, index = sets.find_distinct(ranks.queued) if merge else unmerged
        anchors = len(sets) - ranks.queued
        self.own = int(index[:own_rows].max()) + 1 if own_rows else 0
        self.anchors = int(index[:anchors].max()) + 1 if anchors else 0
        self.rows = copy_to_device(
            torch.bincount(index, minlength=len(distinct_sets)).to(ranks.dtype), device
        )
        self.index, self.sets = copy_to_device(index, device), distinct_sets.to(device)
        self.own_index = self.index[:own_rows]
        self.reduced = distinct_sets.drop_unique_labels().to(device)

    def attract(self, symmetric_weights: Callable[[slice, slice], Tensor], z_BD: Tensor) -> Tensor:
        """Returns the own rows of (W + W^T) Z, (N, D).

        `symmetric_weights` returns W_uv + W_vu of a tile of sets (I, J), a tensor that may be overwritten.
        """
        group_UD = z_BD.new_zeros(len(self.sets), z_BD.shape[1]).index_add_(0, self.index, z_BD)
        sum_VD = z_BD.new_zeros(self.own, z_BD.shape[1])
        itself_V = z_BD.new_zeros(self.own)
        for rows, cols, mirrored in tiles(z_BD.device, self.own, len(self.sets)):
            both_IJ = symmetric_weights(rows, cols)
            if rows == cols:
                # A set's weight with itself may be so large that rounding would hide the others beside it.
                itself_V[rows] = both_IJ.diagonal()
                both_IJ.fill_diagonal_(0)
            sum_VD[rows].addmm_(both_IJ, group_UD[cols])
            if mirrored:
                sum_VD[cols].addmm_(both_IJ.T, group_UD[rows])
        index_N = self.own_index
        return sum_VD[index_N] + itself_V[index_N, None] * (group_UD[index_N] - z_BD[: len(index_N)])
