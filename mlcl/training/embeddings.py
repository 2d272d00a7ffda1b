"""Embeddings of whole splits by the frozen encoder, each rank encoding a share of the rows.

Shapes: N rows, n rows of a rank, D embedding, O columns of the encoder's output: the
embedding, and for some encoders one logit for each label after it.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from mlcl.training.batches import Rows
from mlcl.training.context import Context
from mlcl.training.events import Diverged
from mlcl.training.neighbours import RankRows, shares


@dataclass(frozen=True)
class SplitEncoder:
    """Encodes splits on all ranks, in batches."""

    encoder: nn.Module
    batch_size: int
    precision: str
    context: Context

    def embeddings(self, rows: Rows) -> RankRows:
        """Float32 embeddings (n, D) of this rank's share of the rows, on the CPU.

        Raises Diverged on every rank where values of any rank are not finite.
        """
        return self._share(rows, self._dim)

    def outputs(self, rows: Rows) -> Tensor:
        """Float32 outputs (N, O) of all rows, in their order, on the CPU of every rank.

        Raises as `embeddings`.
        """
        counts = [len(share) for share in shares(len(rows), self.context.world_size)]
        return self.context.rows(self._share(rows, self._dim + label_logits(self.encoder)).values, counts)

    @property
    def _dim(self) -> int:
        return int(self.encoder.dim)  # type: ignore[arg-type]

    @torch.no_grad()
    def _share(self, rows: Rows, columns: int) -> RankRows:
        """The first columns of the outputs. The encoder is left in evaluation mode."""
        self.encoder.eval()
        own = shares(len(rows), self.context.world_size)[self.context.rank]
        output_nO = torch.empty(len(own), columns)
        for first in range(0, len(own), self.batch_size):
            batch = own[first : first + self.batch_size]
            inputs = rows.plain(torch.arange(batch.start, batch.stop), self.context.device)
            with self.context.autocast(self.precision):
                output: Tensor = self.encoder(**inputs)
            output_nO[first : first + len(batch)] = output[:, :columns]
        check_finite(output_nO, "the encoder's embeddings", self.context)
        return RankRows(output_nO, own.start, self.context)


def check_finite(values: Tensor, what: str, context: Context) -> None:
    """Raises Diverged, on every rank, where values of any rank are not finite.

    Finite weights may be too large for what they are multiplied with.
    """
    if context.any(not bool(torch.isfinite(values).all())):
        raise Diverged(f"{what} are not finite")


def label_logits(encoder: nn.Module) -> int:
    """The number of logits after the embedding: one for each label from PLM-ICD and LDGN, else none."""
    return int(getattr(encoder, "label_logits", 0))
