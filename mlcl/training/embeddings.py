"""Embeddings of whole splits by the frozen encoder, each rank encoding a share of the rows.

Shapes: N rows, n rows of a rank, O columns of the encoder's output: the embedding, and for some encoders one
logit for each label after it.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from mlcl.training.batches import Rows
from mlcl.training.context import Context


def shares(rows: int, batch_size: int, ranks: int) -> list[range]:
    """Consecutive runs of rows, one for each rank, cut between batches.

    So a row is encoded in the same batch, and has the same embedding to the last bit, with any number of
    ranks. With fewer batches than ranks some runs are empty.
    """
    batches = math.ceil(rows / batch_size)
    cuts = [min(rows, batch_size * (batches * rank // ranks)) for rank in range(ranks + 1)]
    return [range(first, stop) for first, stop in zip(cuts[:-1], cuts[1:], strict=True)]


@torch.no_grad()
def embed_share(
    encoder: nn.Module, rows: Rows, batch_size: int, precision: str, context: Context
) -> Tensor:
    """Float32 outputs (n, O) of this rank's share of the rows, on the CPU.

    The encoder is left in evaluation mode.
    """
    encoder.eval()
    share = shares(len(rows), batch_size, context.world_size)[context.rank]
    output_nO = torch.empty(len(share), output_size(encoder))
    for first in range(0, len(share), batch_size):
        indices = torch.arange(share.start + first, min(share.start + first + batch_size, share.stop))
        with context.autocast(precision):
            output: Tensor = encoder(**rows.plain(indices, context.device))
        output_nO[first : first + len(indices)] = output
    return output_nO


def embed(encoder: nn.Module, rows: Rows, batch_size: int, precision: str, context: Context) -> Tensor:
    """Float32 outputs (N, O) of all rows, on the CPU of every rank, in the order of the rows."""
    own_nO = embed_share(encoder, rows, batch_size, precision, context)
    return context.rows(own_nO, [len(share) for share in shares(len(rows), batch_size, context.world_size)])


def output_size(encoder: nn.Module) -> int:
    """Columns of an encoder's output."""
    return int(encoder.dim) + label_logits(encoder)  # type: ignore[arg-type]


def label_logits(encoder: nn.Module) -> int:
    """The number of logits after the embedding: one for each label from PLM-ICD and LDGN, else none."""
    return int(getattr(encoder, "label_logits", 0))
