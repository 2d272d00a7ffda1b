"""What a loss saw in its last call."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from mlcl.losses.weighting import Weighting


@dataclass(frozen=True)
class LossStats:
    """Anchors of this process and their positives among all candidates.

    The two tensors are detached scalars on the embeddings' device: nothing waits for them before they are
    read.
    """

    anchors: int
    positives_per_anchor: Tensor
    without_positive: Tensor

    @classmethod
    def of(cls, weighting: Weighting) -> LossStats:
        """The mean |P(i)|, and the share of anchors without a positive; zeros where there is no anchor."""
        positives_N = weighting.positives.detach()
        count = max(len(positives_N), 1)
        return cls(len(positives_N), positives_N.sum() / count, (positives_N == 0).sum() / count)
