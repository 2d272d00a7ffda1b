"""Embeddings of whole splits by the frozen encoder, shared out over the ranks.

Shapes: N rows, O the encoder's output: the embedding, for some with a logit for each label after it.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from mlcl.training.batches import Rows
from mlcl.training.context import Context


@torch.no_grad()
def embed(encoder: nn.Module, rows: Rows, batch_size: int, precision: str, context: Context) -> Tensor:
    """Float32 outputs (N, O) of all rows, on the CPU of every rank, in the order of the rows.

    Each rank encodes a contiguous share. The encoder is left in evaluation mode.
    """
    encoder.eval()
    share = torch.arange(len(rows)).tensor_split(context.world_size)[context.rank]
    parts = [
        _embed_batch(encoder, rows, indices, precision, context)
        for indices in torch.split(share, batch_size)
        if len(indices)
    ]
    own_NO = torch.cat(parts) if parts else torch.zeros(0, output_size(encoder))
    return torch.cat(context.objects(own_NO))


def output_size(encoder: nn.Module) -> int:
    """Columns of an encoder's output."""
    return int(encoder.dim) + label_logits(encoder)  # type: ignore[arg-type]


def label_logits(encoder: nn.Module) -> int:
    """How many logits an encoder gives after its embedding: one a label for PLM-ICD and LDGN, else none."""
    return int(getattr(encoder, "label_logits", 0))


def _embed_batch(encoder: nn.Module, rows: Rows, indices: Tensor, precision: str, context: Context) -> Tensor:
    with context.autocast(precision):
        output: Tensor = encoder(**rows.plain(indices, context.device))
    return output.float().cpu()
