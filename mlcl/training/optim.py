"""Optimiser and learning-rate schedule from PyTorch, with the usual parameter groups."""

from __future__ import annotations

import math

from torch import nn
from torch.optim import SGD, Adam, AdamW, Optimizer
from torch.optim.lr_scheduler import LambdaLR


def parameter_groups(model: nn.Module, weight_decay: float) -> list[dict[str, object]]:
    """Matrices decay; biases, normalisation and learned temperatures (one dimension or less) do not.

    Source: Similarity-Dissimilarity, appendix D (no decay on bias and LayerNorm).
    """
    trained = [p for p in model.parameters() if p.requires_grad]
    groups = [
        {"params": [p for p in trained if p.ndim > 1], "weight_decay": weight_decay},
        {"params": [p for p in trained if p.ndim <= 1], "weight_decay": 0.0},
    ]
    return [group for group in groups if group["params"]]


def build_optimizer(
    model: nn.Module, name: str, lr: float, weight_decay: float, momentum: float
) -> Optimizer:
    """The optimiser of that name over `parameter_groups`.

    `adamw`; `adam`, whose weight decay is added to the gradient; or `sgd`, with plain momentum.
    """
    groups = parameter_groups(model, weight_decay)
    if name == "adamw":
        return AdamW(groups, lr=lr)
    if name == "adam":
        return Adam(groups, lr=lr)
    return SGD(groups, lr=lr, momentum=momentum)


def build_schedule(optimizer: Optimizer, name: str, steps: int, warmup: float) -> LambdaLR:
    """Linear warm-up over a share of the steps, then a cosine to 0 or a constant.

    Source: Similarity-Dissimilarity, appendix D (cosine with a 0.05 warm-up).
    """
    warm = round(steps * warmup)

    def factor(step: int) -> float:
        if step < warm:
            return (step + 1) / warm
        if name == "constant":
            return 1.0
        return 0.5 * (1 + math.cos(math.pi * min(1.0, (step - warm) / max(1, steps - warm))))

    return LambdaLR(optimizer, factor)
