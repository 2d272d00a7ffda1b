"""Scales rows to unit length, with a bounded gradient. Needs only torch. Shapes: N rows, D columns."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

SHORTEST = torch.finfo(torch.float32).eps
"""The Euclidean norm below which a row counts as zero, in every dtype."""


def unit_rows(z_ND: Tensor) -> Tensor:
    """Returns `F.normalize(z_ND, dim=1)`, in which a row shorter than `SHORTEST` counts as zero.

    Such a row becomes zero and gets no gradient; `F.normalize` would multiply its gradient by up to 1e12.
    """
    wide_ND = z_ND.detach().to(torch.promote_types(z_ND.dtype, torch.float32))
    zero_N1 = torch.linalg.vector_norm(wide_ND, dim=1, keepdim=True) < SHORTEST
    return F.normalize(z_ND.masked_fill(zero_N1, 0), dim=1)
