"""Rows of frozen inputs, in batches.

Shapes: N rows, B of a batch, F columns of an input, T entries of the fullest row of a batch.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from mlcl.training.extractors import Matrix


@dataclass(frozen=True, eq=False)
class FeatureRows:
    """The rows (N, F) of each input, by its name: in memory or memory-mapped, dense or sparse."""

    inputs: Mapping[str, Matrix]

    def __len__(self) -> int:
        return int(next(iter(self.inputs.values())).shape[0])

    def batch(self, indices: Tensor) -> dict[str, Tensor]:
        """A dense input as NAME (B, F); a sparse one as NAME_columns and NAME_values (B, T), padded."""
        rows_B, batch = indices.numpy(), {}
        for name, matrix in self.inputs.items():
            if isinstance(matrix, np.ndarray):
                batch[name] = torch.from_numpy(np.array(matrix[rows_B]))
            else:
                batch[f"{name}_columns"], batch[f"{name}_values"] = _padded(matrix, rows_B)
        return batch


def _padded(matrix: Any, rows_B: Any) -> tuple[Tensor, Tensor]:
    part = matrix[rows_B]
    length_B = np.diff(part.indptr)
    held_BT = np.arange(max(1, int(length_B.max(initial=0)))) < length_B[:, None]
    column_BT, value_BT = np.zeros(held_BT.shape, np.int32), np.zeros(held_BT.shape, np.float32)
    column_BT[held_BT], value_BT[held_BT] = part.indices, part.data
    return torch.from_numpy(column_BT), torch.from_numpy(value_BT)
