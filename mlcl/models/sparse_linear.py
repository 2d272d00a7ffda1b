"""A linear map of sparse rows.

Shapes: B rows, T entries of the fullest row, E entries of all rows, F columns, O outputs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import torch
import torch.nn.functional as F
from torch import Tensor, nn


@dataclass(frozen=True)
class SparseRows:
    """Sparse rows, one after another: entry e has `column_E[e]` and `value_E[e]`.

    Row b has the entries from `offset[b]` on, up to `offset[b + 1]`; `offset` (B + 1,) and the columns are
    int32, the values float.
    """

    column_E: Tensor
    value_E: Tensor
    offset: Tensor

    @classmethod
    def of(cls, column_BT: Tensor, value_BT: Tensor) -> Self:
        """From padded rows, whose padding has the value 0.

        A CPU leaves the padding out. Another device keeps it, since it would have to wait for the count.
        """
        if column_BT.device.type != "cpu":
            return cls.padded(column_BT, value_BT)
        held_BT = (value_BT != 0).numpy()
        column_E, value_E = column_BT.numpy()[held_BT], value_BT.numpy()[held_BT]
        offset = _offsets(torch.from_numpy(held_BT.sum(1)))
        return cls(torch.from_numpy(column_E), torch.from_numpy(value_E), offset)

    @classmethod
    def padded(cls, column_BT: Tensor, value_BT: Tensor) -> Self:
        """From padded rows, with their padding."""
        rows, entries = column_BT.shape
        offset = torch.arange(rows + 1, device=column_BT.device, dtype=torch.int32) * entries
        return cls(column_BT.flatten(), value_BT.flatten(), offset)

    def below(self, columns: int) -> Self:
        """The rows without what is in later columns, on a CPU."""
        known_E = self.column_E.numpy() < columns
        if known_E.all():
            return self
        column_E, value_E = self.column_E.numpy()[known_E], self.value_E.numpy()[known_E]
        offset = _offsets(torch.from_numpy(known_E))[self.offset]
        return type(self)(torch.from_numpy(column_E), torch.from_numpy(value_E), offset)


def _offsets(counts: Tensor) -> Tensor:
    return F.pad(counts.cumsum(0, dtype=torch.int32), (1, 0))


class SparseLinear(nn.Module):
    """y_b = sum_e v_e W[c_e] over the entries e of row b in columns below F; others have no part in it.

    No bias. W starts normal with deviation `std`, or at 0.
    """

    def __init__(self, columns: int, outputs: int, std: float) -> None:
        super().__init__()
        self.weight_FO = nn.Parameter(torch.randn(columns, outputs) * std)

    def forward(self, rows: SparseRows) -> Tensor:
        """The products (B, O) of B rows."""
        if rows.column_E.device.type != "cpu":
            return self.by_bag(rows)
        y_BO: Tensor = _Product.apply(rows.below(len(self.weight_FO)), self.weight_FO)
        return y_BO

    def by_bag(self, rows: SparseRows) -> Tensor:
        """The same by PyTorch alone, on any device."""
        known_E = rows.column_E < len(self.weight_FO)
        return _sums(SparseRows(rows.column_E * known_E, rows.value_E * known_E, rows.offset), self.weight_FO)


class _Product(torch.autograd.Function):
    """X W by two sums over bags: on a CPU a fraction of the time of `embedding_bag`'s own backward.

    A row of X W sums the rows of W that the entries of X's row name; a row of the gradient X^T G sums rows of
    G in the same way, by the entries of X transposed.
    """

    @staticmethod
    def forward(ctx: Any, rows: SparseRows, weight_FO: Tensor) -> Tensor:
        ctx.rows, ctx.columns = rows, len(weight_FO)
        return _sums(rows, weight_FO)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[None, Tensor]:
        return None, _sums(_transposed(ctx.rows, ctx.columns), gradients[0].contiguous())


def _sums(rows: SparseRows, matrix: Tensor) -> Tensor:
    return F.embedding_bag(
        rows.column_E,
        matrix,
        rows.offset,
        mode="sum",
        per_sample_weights=rows.value_E.to(matrix.dtype),
        include_last_offset=True,
    )


def _transposed(rows: SparseRows, columns: int) -> SparseRows:
    from scipy.sparse import csr_array

    entries = tuple(part.numpy() for part in (rows.value_E, rows.column_E, rows.offset))
    by_column = csr_array(entries, shape=(len(rows.offset) - 1, columns)).T.tocsr()
    column_E, value_E, offset = map(torch.from_numpy, (by_column.indices, by_column.data, by_column.indptr))
    return SparseRows(column_E, value_E, offset)
