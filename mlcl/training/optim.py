"""Optimiser and learning-rate schedule from PyTorch, with the usual parameter groups."""

from __future__ import annotations

import math
from collections.abc import Iterable

from torch import nn
from torch.nn import Parameter
from torch.optim import SGD, Adam, AdamW, Optimizer
from torch.optim.lr_scheduler import LambdaLR

ENCODER = "encoder"
"""The name of the parameter groups with a learning rate of their own."""


def parameter_groups(
    model: nn.Module, weight_decay: float, encoder_lr: float | None = None
) -> list[dict[str, object]]:
    """Matrices decay; biases, normalisation and learned temperatures (one dimension or less) do not.

    With `encoder_lr` the parameters of `model.encoder` come first, in groups with that learning rate.
    Source: Similarity-Dissimilarity, appendix D (no decay on bias and LayerNorm).
    """
    trained = [(name, p) for name, p in model.named_parameters() if p.requires_grad]
    if encoder_lr is None:
        return _by_decay((p for _, p in trained), weight_decay)
    inside = [name.startswith(f"{ENCODER}.") for name, _ in trained]
    encoder = [p for (_, p), its in zip(trained, inside, strict=True) if its]
    others = [p for (_, p), its in zip(trained, inside, strict=True) if not its]
    own = [{**group, "lr": encoder_lr, "name": ENCODER} for group in _by_decay(encoder, weight_decay)]
    return own + _by_decay(others, weight_decay)


def _by_decay(parameters: Iterable[Parameter], weight_decay: float) -> list[dict[str, object]]:
    parameters = list(parameters)
    groups: list[dict[str, object]] = [
        {"params": [p for p in parameters if p.ndim > 1], "weight_decay": weight_decay},
        {"params": [p for p in parameters if p.ndim <= 1], "weight_decay": 0.0},
    ]
    return [group for group in groups if group["params"]]


def build_optimizer(
    model: nn.Module,
    name: str,
    lr: float,
    weight_decay: float,
    momentum: float,
    encoder_lr: float | None = None,
) -> Optimizer:
    """The optimiser of that name over `parameter_groups`.

    `adamw`; `adam`, whose weight decay is added to the gradient; or `sgd`, with plain momentum.
    """
    groups = parameter_groups(model, weight_decay, encoder_lr)
    if name == "adamw":
        return AdamW(groups, lr=lr, fused=True)
    if name == "adam":
        return Adam(groups, lr=lr, fused=True)
    return SGD(groups, lr=lr, momentum=momentum, fused=next(model.parameters()).is_cuda)


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


def learning_rates(optimizer: Optimizer) -> dict[str, float]:
    """The learning rates now: `lr`, and `encoder_lr` where the encoder has its own."""
    keys = [f"{ENCODER}_lr" if group.get("name") == ENCODER else "lr" for group in optimizer.param_groups]
    return {key: float(group["lr"]) for key, group in zip(keys, optimizer.param_groups, strict=True)}
