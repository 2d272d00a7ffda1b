"""The rows that a loss compares: this process's own, or those of all processes.

Shapes: N own rows, B rows of all, D embedding.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from mlcl.losses.gather import (
    Group,
    gather_embeddings,
    gather_labels,
    gather_tensor,
    own_rows,
    row_counts,
    world,
)
from mlcl.losses.labels import Labels


@dataclass(frozen=True)
class Batch:
    """All candidates, and where the anchors lie among them.

    `embeddings` (B, D), `labels` and `sample_ids` of B rows; `processes` share the anchors out.
    """

    embeddings: Tensor
    labels: Labels | None
    sample_ids: Tensor | None
    anchors: slice
    processes: int = 1


def own_batch(z_ND: Tensor, labels: Labels | None, sample_ids: Tensor | None) -> Batch:
    """The rows of this process alone, labels moved to the embeddings' device."""
    return Batch(
        z_ND,
        None if labels is None else labels.to(z_ND.device),
        None if sample_ids is None else sample_ids.to(z_ND.device),
        slice(0, len(z_ND)),
    )


def whole_batch(own: Batch, group: Group | None) -> Batch:
    """The rows of all processes of the group, with gradient; the own rows are the anchors."""
    counts = row_counts(len(own.embeddings), own.embeddings.device, group)
    return Batch(
        gather_embeddings(own.embeddings, counts, group),
        None if own.labels is None else gather_labels(own.labels, counts, group),
        None if own.sample_ids is None else gather_tensor(own.sample_ids, counts, group),
        own_rows(counts, group),
        world(group),
    )
