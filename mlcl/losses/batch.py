"""The rows that a loss compares: this process's own, or those of all processes, own rows first.

Shapes: N own rows, B rows of all, D embedding.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from mlcl.losses.collectives import (
    Group,
    gather_embeddings,
    gather_parts,
    gather_tensor,
    gathers_on_host,
    own_rows,
    rank_sizes,
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

    def labels_own_first(self, rows: Labels) -> Labels:
        """The same for labels."""
        if isinstance(rows, Tensor):
            return self.own_first(rows)
        return rows.take(self.own_first(torch.arange(len(rows), device=rows.device)))

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

    def labelled(self, labels: Labels | None) -> Batch:
        """The same rows with these labels."""
        return self if labels is None else replace(self, labels=_near(labels, self.embeddings.device))


def _near(values: Any, device: torch.device) -> Any:
    """Labels or ids in the host's memory where they are there, else on the device of the embeddings."""
    return values if values.device.type == "cpu" else values.to(device)


def own_batch(z_ND: Tensor, sample_ids: Tensor | None) -> Batch:
    """The rows of this process alone, without labels."""
    samples = None if sample_ids is None else _near(sample_ids, z_ND.device)
    return Batch(z_ND, None, samples, len(z_ND), Ranks(z_ND.device))


def whole_batches(
    own: Batch, labels: Sequence[Labels | None], group: Group | None, *, gradient: bool
) -> list[Batch]:
    """The rows of all processes of the group, once with each of the labels, given those of the own rows.

    Embeddings go in one collective, all else in one after it, from the host's memory where the group can,
    and the sizes in one before. With `gradient` that of the rows flows back to where they came from.
    """
    device = own.embeddings.device
    place = torch.device("cpu") if gathers_on_host(group) else device
    given = [part.to(place) for part in (own.sample_ids, *labels) if part is not None]
    sizes = rank_sizes(own.own, given, place, group)
    counts = [size[0] for size in sizes]
    ranks = ManyRanks(counts, group, device)
    if gradient:
        z_BD = ranks.own_first(gather_embeddings(own.embeddings, counts, group))
    else:
        z_BD = ranks.share(own.embeddings)
    parts: Iterator[Any] = map(ranks.labels_own_first, gather_parts(given, sizes, group))
    samples = None if own.sample_ids is None else next(parts)
    rows = Batch(z_BD, None, samples, own.own, ranks)
    return [rows if part is None else replace(rows, labels=next(parts)) for part in labels]
