"""Embeddings of whole splits by the frozen encoder, shared out over the ranks.

Shapes: N rows, D embedding.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from mlcl.training.batches import Rows
from mlcl.training.context import Context


@torch.no_grad()
def embed(encoder: nn.Module, rows: Rows, batch_size: int, precision: str, context: Context) -> Tensor:
    """Float32 embeddings (N, D) of all rows, on the CPU of every rank, in the order of the rows.

    Each rank encodes a contiguous share. The encoder is left in evaluation mode.
    """
    encoder.eval()
    share = torch.arange(len(rows)).tensor_split(context.world_size)[context.rank]
    parts = [
        _embed_batch(encoder, rows, indices, precision, context)
        for indices in torch.split(share, batch_size)
        if len(indices)
    ]
    own_ND = torch.cat(parts) if parts else torch.zeros(0, int(encoder.dim))  # type: ignore[arg-type]
    return torch.cat(context.objects(own_ND))


def _embed_batch(encoder: nn.Module, rows: Rows, indices: Tensor, precision: str, context: Context) -> Tensor:
    with context.autocast(precision):
        embedding: Tensor = encoder(**rows.plain(indices, context.device))
    return embedding.float().cpu()
