"""Rows of all ranks on every rank, which may hold different numbers of them.

Shapes: N own rows, B rows of all ranks in the order of ranks, D embedding.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from mlcl.labels import LabelRows
from mlcl.losses.labels import Labels

Group = Any  # dist.ProcessGroup, a class that a torch built without distributed lacks


def world(group: Group | None) -> int:
    """Processes that share the batch: 1 where torch.distributed is not initialised."""
    if not (dist.is_available() and dist.is_initialized()):
        return 1
    return dist.get_world_size(group)


def gathers_on_host(group: Group | None) -> bool:
    """Whether the group's processes can send what is in the host's memory, as NCCL alone cannot."""
    return "cpu:" in dist.get_backend_config(group)


def row_counts(own: int, device: torch.device, group: Group | None) -> list[int]:
    """Rows of each rank."""
    parts = [torch.zeros(1, dtype=torch.int64, device=device) for _ in range(world(group))]
    dist.all_gather(parts, torch.tensor([own], dtype=torch.int64, device=device), group=group)
    return [int(count) for count in torch.cat(parts).tolist()]


def own_rows(counts: Sequence[int], group: Group | None) -> slice:
    """Where this rank's rows lie among all."""
    rank = dist.get_rank(group)
    start = sum(counts[:rank])
    return slice(start, start + counts[rank])


def gather_tensor(rows: Tensor, counts: Sequence[int], group: Group | None) -> Tensor:
    """Rows of all ranks, without gradient. Shorter ranks are padded: a collective needs equal shapes."""
    padded = rows.new_zeros(max(counts), *rows.shape[1:])
    padded[: len(rows)] = rows.detach()
    parts = [torch.empty_like(padded) for _ in counts]
    dist.all_gather(parts, padded, group=group)
    return torch.cat([part[:count] for part, count in zip(parts, counts, strict=True)])


class _GatherRows(torch.autograd.Function):
    """Gather in the forward; in the backward, the sum over ranks of the gradient of own rows."""

    @staticmethod
    def forward(ctx: Any, z_ND: Tensor, counts: Sequence[int], group: Group | None) -> Tensor:
        ctx.own, ctx.group = own_rows(counts, group), group
        return gather_tensor(z_ND, counts, group)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None]:
        grad_BD = grads[0].clone(memory_format=torch.contiguous_format)
        dist.all_reduce(grad_BD, group=ctx.group)
        return grad_BD[ctx.own], None, None


def gather_embeddings(z_ND: Tensor, counts: Sequence[int], group: Group | None) -> Tensor:
    """Embeddings of all ranks, through which the gradient of every rank's loss flows back."""
    z_BD: Tensor = _GatherRows.apply(z_ND, counts, group)
    return z_BD


def gather_labels(labels: Labels, counts: Sequence[int], group: Group | None) -> Labels:
    """Labels of all ranks. Raises ValueError where ranks differ in the width of their rows."""
    if isinstance(labels, Tensor):
        return gather_tensor(labels, counts, group)
    widths = row_counts(labels.width, labels.device, group)
    if len(set(widths)) > 1:
        raise ValueError(f"label rows of different widths on the ranks: {widths}")
    count_B = gather_tensor(labels.counts(), counts, group)
    entries = [int(part.sum()) for part in torch.split(count_B, list(counts))]
    offsets = torch.cat([count_B.new_zeros(1), count_B.cumsum(0)])
    columns = gather_tensor(labels.columns, entries, group)
    return LabelRows(offsets, columns, labels.width, labels.levels)
