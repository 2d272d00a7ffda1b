"""A linear map of sparse rows.

Shapes: B rows, T entries of the fullest row, F columns, O outputs.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn


class SparseLinear(nn.Module):
    """y_b = sum_t v_bt W[c_bt] over a row's entries in columns below F; others have no part in it.

    No bias. W starts normal with deviation `std`, or at 0.
    """

    def __init__(self, columns: int, outputs: int, std: float) -> None:
        super().__init__()
        self.weight_FO = nn.Parameter(torch.randn(columns, outputs) * std)

    def forward(self, column_BT: Tensor, value_BT: Tensor) -> Tensor:
        """Columns (B, T) int64 and their values (B, T) float, 0 where a row has no more; gives (B, O)."""
        if column_BT.device.type != "cpu":
            return self.by_bag(column_BT, value_BT)
        y_BO: Tensor = _Product.apply(column_BT, value_BT, self.weight_FO)
        return y_BO

    def by_bag(self, column_BT: Tensor, value_BT: Tensor) -> Tensor:
        """The same by PyTorch alone, on any device."""
        known_BT = column_BT < len(self.weight_FO)
        return F.embedding_bag(
            column_BT * known_BT, self.weight_FO, per_sample_weights=value_BT * known_BT, mode="sum"
        )


class _Product(torch.autograd.Function):
    """X W by SciPy: on a CPU a fraction of the time of `embedding_bag`, whose backward sorts the entries."""

    @staticmethod
    def forward(ctx: Any, column_BT: Tensor, value_BT: Tensor, weight_FO: Tensor) -> Tensor:
        ctx.rows = _csr(column_BT, value_BT, len(weight_FO))
        return torch.from_numpy(ctx.rows @ weight_FO.detach().numpy())

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[None, None, Tensor]:
        return None, None, torch.from_numpy(ctx.rows.T @ gradients[0].contiguous().numpy())


def _csr(column_BT: Tensor, value_BT: Tensor, columns: int) -> Any:
    from scipy.sparse import csr_array

    value, column = value_BT.numpy(), column_BT.numpy()
    held_BT = (value != 0) & (column < columns)
    offsets = np.concatenate([[0], held_BT.sum(1).cumsum()])
    return csr_array((value[held_BT], column[held_BT], offsets), shape=(len(value), columns))
