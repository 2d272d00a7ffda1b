"""What a rule hands to the engine, and the few operations that rules share.

Shapes: B candidates (all rows of the batch), N anchors (a contiguous slice of them).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from mlcl.labels import sent


@dataclass(frozen=True)
class Weighting:
    """The weights of N anchors' pairs; depends on labels alone.

    `weights` (N, B) >= 0 are zero for the anchor itself and for every pair that is not positive. `positives`
    (N,) are the |P(i)|. `constant` (N,) is added to each anchor's term where a printed equation has a part
    that is constant in the embeddings. `prototypes` (N, L) are the weights of a rule's prototypes.
    """

    weights: Tensor
    positives: Tensor
    constant: Tensor | None = None
    prototypes: Tensor | None = None
    repulsion: float = 1.0

    @property
    def valid(self) -> Tensor:
        """Whether an anchor has a positive, a row or a prototype, as bool (N,)."""
        valid_N = self.positives > 0
        return valid_N if self.prototypes is None else valid_N | (self.prototypes > 0).any(1)

    def to(self, device: torch.device) -> Weighting:
        """The same on a device, for which the host does not wait."""
        moved: dict[str, Any] = {
            name: sent(value, device) for name, value in vars(self).items() if isinstance(value, Tensor)
        }
        return replace(self, **moved)


def others(anchors: slice, count: int, device: torch.device) -> Tensor:
    """The candidates A(i) of each anchor as a bool (N, B) mask: all rows but i itself."""
    index_B = torch.arange(count, device=device)
    return index_B[anchors, None] != index_B


def safe_divide(top: Tensor, bottom: Tensor) -> Tensor:
    """top / bottom with 0 wherever bottom is 0."""
    zero = bottom == 0
    return torch.where(zero, 0.0, top / bottom.masked_fill(zero, 1))


def ratio(part: Tensor, whole: Tensor) -> Tensor:
    """part / whole for 0 <= part <= whole, 0 where the whole is 0."""
    return part / whole.clamp(min=torch.finfo(whole.dtype).tiny)


def uniform(positive_NB: Tensor, dtype: torch.dtype) -> Weighting:
    """W_ip = 1[p in P(i)] / |P(i)|: every positive of an anchor weighs the same."""
    positives_N = positive_NB.sum(1)
    w_NB = safe_divide(positive_NB.to(dtype), positives_N.to(dtype)[:, None])
    return Weighting(w_NB, positives_N)


def of_matrix(w_NB: Tensor, anchors: slice) -> Weighting:
    """W as given, but for an anchor with itself, which has no weight; positive are the pairs above 0."""
    w_NB = w_NB * others(anchors, w_NB.shape[1], w_NB.device)
    return Weighting(w_NB, (w_NB > 0).sum(1))
