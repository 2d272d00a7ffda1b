"""How strongly each part of the objective pulls at the encoder: the norms of their gradients.

Shapes: R rows of this process, O columns of the encoder's output (D, or D + L).
"""

from __future__ import annotations

import torch
from torch import Tensor

from mlcl.training.batches import Batch
from mlcl.training.context import Context
from mlcl.training.objective import Objective


def gradient_norms(
    objective: Objective, output_RO: Tensor, batch: Batch, context: Context, precision: str
) -> dict[str, float]:
    """|d(w_k L_k) / dZ| of each part k, Z the encoder's output for the whole batch; the same on every rank.

    By name: `heads/NAME/gradient_norm`, `classifier/gradient_norm`. It takes one more forward and backward of
    the objective, none of the encoder, and changes no `.grad`. Every rank must call it.
    """
    output_RO = output_RO.detach().requires_grad_()
    squares: dict[str, Tensor] = {}
    with context.autocast(precision):
        for name, part in objective.weighted_parts(output_RO, batch.labels, batch.sample_ids):
            (gradient_RO,) = torch.autograd.grad(part, output_RO, materialize_grads=True)
            squares[f"{name}/gradient_norm"] = gradient_RO.double().square().sum()
    total_K = context.sum(torch.stack(list(squares.values())))
    # A rank's value is its share times the number of ranks, and so is its gradient.
    return {
        name: total**0.5 / context.world_size for name, total in zip(squares, total_K.tolist(), strict=True)
    }
