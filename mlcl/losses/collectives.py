"""Rows of all ranks on every rank, which may hold different numbers of them.

Shapes: N own rows, B rows of all ranks in the order of ranks, D embedding.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
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


def rank_sizes(
    own: int, parts: Sequence[Labels], device: torch.device, group: Group | None
) -> list[list[int]]:
    """For each rank its rows, and of each part the width and the number of `_words`, in one collective."""
    mine = [own, *(size for part in parts for size in (_width(part), len(_words(part))))]
    sent = torch.tensor(mine, dtype=torch.int64, device=device)
    found = [torch.empty_like(sent) for _ in range(world(group))]
    dist.all_gather(found, sent, group=group)
    sizes: list[list[int]] = torch.stack(found).tolist()
    return sizes


def gather_parts(parts: Sequence[Labels], sizes: list[list[int]], group: Group | None) -> list[Labels]:
    """Labels, or other values of rows, of all ranks, all parts in one collective. `sizes` by `rank_sizes`.

    Raises ValueError where ranks differ in the width of their rows.
    """
    if not parts:
        return []
    for place in range(len(parts)):
        widths = [size[1 + 2 * place] for size in sizes]
        if len(set(widths)) > 1:
            raise ValueError(f"label rows of different widths on the ranks: {widths}")
    own = torch.cat([_words(part) for part in parts])
    words = gather_tensor(own, [sum(size[2::2]) for size in sizes], group)
    each = iter(torch.split(words, [count for size in sizes for count in size[2::2]]))
    ranks = [[next(each) for _ in parts] for _ in sizes]
    counts = [size[0] for size in sizes]
    return [_read(part, its, counts) for part, its in zip(parts, zip(*ranks, strict=True), strict=True)]


def _width(part: Labels) -> int:
    return part.width if isinstance(part, LabelRows) else math.prod(part.shape[1:])


def _words(part: Labels) -> Tensor:
    """Its values one after the other as int64, of label rows the numbers of labels and these."""
    if isinstance(part, LabelRows):
        return torch.cat([part.counts(), part.columns])
    flat = part.detach().reshape(-1)
    return flat.double().view(torch.int64) if flat.is_floating_point() else flat.long()


def _read(like: Labels, words: Sequence[Tensor], counts: Sequence[int]) -> Labels:
    """The values of all ranks, which hold so many rows, from their words."""
    if isinstance(like, LabelRows):
        pairs = list(zip(words, counts, strict=True))
        count_B = torch.cat([word[:count] for word, count in pairs])
        columns = torch.cat([word[count:] for word, count in pairs])
        return LabelRows(F.pad(count_B.cumsum(0), (1, 0)), columns, like.width, like.levels)
    flat = torch.cat(list(words))
    flat = flat.view(torch.float64) if like.is_floating_point() else flat
    return flat.to(like.dtype).view(sum(counts), *like.shape[1:])
