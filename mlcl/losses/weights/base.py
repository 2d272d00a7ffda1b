"""The weights W of a rule as the tiled engine uses them: as products, never as a B x B matrix.

Shapes: N own rows (the first N of all), B rows of all processes, D embedding, L prototypes.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

import torch
from torch import Tensor

from mlcl.labels import sent

Number = float | Tensor
"""A number, or a tensor of no dimension whose value the host does not know."""


class BatchRanks:
    """The processes that share a batch, and this process's own rows, which are the first and its anchors.

    All processes make the same calls in one order. This class is one process that holds a batch alone;
    `batch.ManyRanks` are several. `size` is their number, `own` the number of own rows, `dtype` and `device`
    are those of the embeddings. Labels may still be in the host's memory, see `LossSpec.on_host`; a device of
    None stands for the labels' device.
    """

    size = 1

    def __init__(
        self, own: int = 0, dtype: torch.dtype = torch.float32, device: torch.device | None = None
    ) -> None:
        self.own, self.dtype, self.device = own, dtype, device

    def share(self, own: Tensor) -> Tensor:
        """Gathers a value of each own row (N, ...) to one of each row of all processes, own rows first."""
        return own

    def global_rows(self, row: Tensor) -> Tensor:
        """Converts row numbers of this process, own rows first, to numbers that all processes share."""
        return row

    def local_rows(self, row: Tensor) -> Tensor:
        """The inverse of `global_rows`."""
        return row


class PairWeights(ABC):
    """The weights of the own anchors' pairs, which depend on labels alone.

    `row_sums` (N,) are R_i = sum_p W_ip; `constant` (N,) is added to the anchors' terms, None for 0.
    `repulsion` multiplies the exponentials of rows, not of prototypes, in the softmax's sum.
    """

    row_sums: Tensor
    constant: Tensor | None = None
    repulsion: float = 1.0

    @abstractmethod
    def positives(self) -> Tensor:
        """|P(i)|, the number of positives of each own anchor (N,)."""

    @abstractmethod
    def attract(self, z_BD: Tensor) -> Tensor:
        """The own rows of (W + W^T) Z, (N, D)."""

    def attract_prototypes(self, z_BD: Tensor) -> Tensor:
        """W^T Z of the prototypes' columns (L, D), from own rows; the prototypes are the last rows of Z."""
        raise NotImplementedError("this rule gives prototypes no weight")

    def both(self, rows: slice, cols: slice) -> Tensor:
        """W_ij + W_ji of a tile of rows (I, J), 0 where i = j: for similarities that are not bilinear."""
        raise NotImplementedError("this rule has no tiles of weights")

    def has_positive(self) -> Tensor:
        """Whether each own anchor has a positive, as bool (N,)."""
        return self.positives() > 0

    def to(self, device: torch.device) -> PairWeights:
        """Moves its tensors to a device, without waiting for it, and returns itself."""
        for name, value in vars(self).items():
            if isinstance(value, Tensor):
                setattr(self, name, sent(value, device))
        return self

    def at(self, _z_BD: Tensor, _lse_N: Tensor, _ratio: Number) -> PairWeights:
        """The weights at given embeddings: logits are ratio z_i . z_p, `_lse_N` their logsumexp (N,).

        Weights that depend on the labels alone return themselves.
        """
        return self
