"""The rows that a loss compares: this process's own, or those of all processes, own rows first.

Shapes: N own rows, B rows of all, D embedding.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from mlcl.labels import LabelRows
from mlcl.losses.collectives import (
    Group,
    gather_embeddings,
    gather_labels,
    gather_tensor,
    own_rows,
    row_counts,
)
from mlcl.losses.labels import Labels
from mlcl.losses.weights.base import Ranks


class ManyRanks(Ranks):
    """A batch over the processes of a group, which hold `counts` rows; each puts its own rows first."""

    def __init__(self, counts: Sequence[int], group: Group | None) -> None:
        self.size = len(counts)
        self.counts = counts
        self.group = group
        self._start = own_rows(counts, group).start
        self._total = sum(counts)

    def share(self, own: Tensor) -> Tensor:
        """Those of all processes, own rows first."""
        return self.own_first(gather_tensor(own, self.counts, self.group))

    def own_first(self, rows: Tensor) -> Tensor:
        """Rows in the order of ranks to rows in this process's order."""
        return torch.roll(rows, -self._start, 0)

    def global_rows(self, row: Tensor) -> Tensor:
        """To numbers in the order of ranks."""
        return torch.remainder(row + self._start, max(self._total, 1))

    def local_rows(self, row: Tensor) -> Tensor:
        """From numbers in the order of ranks."""
        return torch.remainder(row - self._start, max(self._total, 1))


@dataclass(frozen=True)
class Batch:
    """All candidates, of which the first `own` are this process's, its anchors.

    `embeddings` (B, D), `labels` and `sample_ids` of B rows.
    """

    embeddings: Tensor
    labels: Labels | None
    sample_ids: Tensor | None
    own: int
    ranks: Ranks

    @property
    def anchors(self) -> slice:
        """The own rows."""
        return slice(0, self.own)

    def labelled(self, own: Labels | None) -> Batch:
        """The same rows with labels, given those of the own rows."""
        if own is None:
            return self
        labels = own.to(self.embeddings.device)
        ranks = self.ranks
        if not isinstance(ranks, ManyRanks):
            return replace(self, labels=labels)
        rows = gather_labels(labels, ranks.counts, ranks.group)
        if isinstance(rows, LabelRows):
            order = ranks.own_first(torch.arange(len(rows), device=rows.device))
            return replace(self, labels=rows.take(order))
        return replace(self, labels=ranks.own_first(rows))


def own_batch(z_ND: Tensor, sample_ids: Tensor | None) -> Batch:
    """The rows of this process alone, without labels."""
    return Batch(
        z_ND,
        None,
        None if sample_ids is None else sample_ids.to(z_ND.device),
        len(z_ND),
        Ranks(),
    )


def whole_batch(own: Batch, group: Group | None, *, gradient: bool) -> Batch:
    """The rows of all processes of the group; with `gradient`, theirs flows back to where they came from."""
    counts = row_counts(own.own, own.embeddings.device, group)
    ranks = ManyRanks(counts, group)
    if gradient:
        z_BD = ranks.own_first(gather_embeddings(own.embeddings, counts, group))
    else:
        z_BD = ranks.share(own.embeddings)
    samples = None if own.sample_ids is None else ranks.share(own.sample_ids)
    return Batch(z_BD, None, samples, own.own, ranks)
