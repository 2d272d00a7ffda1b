"""Checks that adapters share."""

from __future__ import annotations

from mlcl.losses import ContrastiveLoss


def check_loss(loss: object, reductions: tuple[str, ...]) -> None:
    """Raises ValueError unless `loss` is a loss of `build_loss` without queue, with one of `reductions`."""
    kind = f"reduction {loss.reduction}" if isinstance(loss, ContrastiveLoss) else type(loss).__name__
    if not isinstance(loss, ContrastiveLoss) or loss.reduction not in reductions:
        raise ValueError(f"loss; found: {kind}; allowed: build_loss(...), reduction {', '.join(reductions)}")
    if loss.queue is not None:
        raise ValueError(f"loss; found: a queue of {loss.queue.size} rows; allowed: a loss without a queue")
