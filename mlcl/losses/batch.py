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
    gathers_on_host,
    own_rows,
    row_counts,
)
from mlcl.losses.labels import Labels
from mlcl.losses.weights.base import Ranks


class ManyRanks(Ranks):
    """A batch over the processes of a group, which hold `counts` rows; each puts its own rows first."""

    def __init__(self, counts: Sequence[int], group: Group | None, device: torch.device) -> None:
        super().__init__(device)
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

    `embeddings` (B, D), `labels` and `sample_ids` of B rows, which may be in the host's memory.
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
        ranks, labels = self.ranks, own.to(_place(own.device, self.embeddings.device))
        if not isinstance(ranks, ManyRanks):
            return replace(self, labels=labels)
        if not gathers_on_host(ranks.group):
            labels = labels.to(self.embeddings.device)
        rows = gather_labels(labels, ranks.counts, ranks.group)
        if isinstance(rows, LabelRows):
            order = ranks.own_first(torch.arange(len(rows), device=rows.device))
            return replace(self, labels=rows.take(order))
        return replace(self, labels=ranks.own_first(rows))


def _place(found: torch.device, device: torch.device) -> torch.device:
    """Of labels or ids: the host's memory where they are there, else the device of the embeddings."""
    return found if found.type == "cpu" else device


def own_batch(z_ND: Tensor, sample_ids: Tensor | None) -> Batch:
    """The rows of this process alone, without labels."""
    samples = None if sample_ids is None else sample_ids.to(_place(sample_ids.device, z_ND.device))
    return Batch(z_ND, None, samples, len(z_ND), Ranks(z_ND.device))


def whole_batch(own: Batch, group: Group | None, *, gradient: bool) -> Batch:
    """The rows of all processes of the group; with `gradient`, theirs flows back to where they came from."""
    device, host = own.embeddings.device, torch.device("cpu")
    counts = row_counts(own.own, host if gathers_on_host(group) else device, group)
    ranks = ManyRanks(counts, group, device)
    if gradient:
        z_BD = ranks.own_first(gather_embeddings(own.embeddings, counts, group))
    else:
        z_BD = ranks.share(own.embeddings)
    samples = own.sample_ids
    if samples is not None:
        samples = ranks.share(samples if gathers_on_host(group) else samples.to(device))
    return Batch(z_BD, None, samples, own.own, ranks)
