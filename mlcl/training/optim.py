"""Optimiser and learning-rate schedule from PyTorch, with the usual parameter groups."""

from __future__ import annotations

import math
from typing import Any

from torch import nn
from torch.nn import Parameter
from torch.optim import SGD, Adam, AdamW, Optimizer
from torch.optim.lr_scheduler import LambdaLR

from mlcl.config.training_sections import TrainConfig
from mlcl.errors import UserError


def parameter_groups(
    model: nn.Module, weight_decay: float, encoder_lr: float | None = None
) -> list[dict[str, Any]]:
    """Groups the trained parameters; weight decay applies only to those with more than one dimension.

    So biases, normalisation weights and learned temperatures do not decay. With `encoder_lr` the parameters
    of `model.encoder` come first, in groups with that learning rate. The name of a group is the name under
    which its learning rate is logged.
    Source: Similarity-Dissimilarity, appendix D (no decay on bias and LayerNorm).
    """
    encoder, others = list[Parameter](), list[Parameter]()
    for name, parameter in model.named_parameters():
        in_encoder = encoder_lr is not None and name.startswith("encoder.")
        if parameter.requires_grad:
            (encoder if in_encoder else others).append(parameter)
    encoder_options = {"lr": encoder_lr, "name": "encoder_lr"}
    groups = []
    for parameters, options in ((encoder, encoder_options), (others, {"name": "lr"})):
        decay_group = {"params": [p for p in parameters if p.ndim > 1], "weight_decay": weight_decay}
        plain_group = {"params": [p for p in parameters if p.ndim <= 1], "weight_decay": 0.0}
        groups += [{**group, **options} for group in (decay_group, plain_group) if group["params"]]
    return groups


def build_optimizer(model: nn.Module, train: TrainConfig) -> Optimizer:
    """Builds the optimiser over `parameter_groups`.

    `adam` adds its weight decay to the gradient; `sgd` uses momentum without Nesterov's variant.
    Raises UserError if no parameter is trained.
    """
    groups = parameter_groups(model, train.weight_decay, train.encoder_lr)
    if not groups:
        problem, allowed = "nothing is left to train", "a projection, a classifier with a weight, or false"
        raise UserError(problem, key="encoder.freeze", found=True, allowed=allowed)
    if train.optimizer == "sgd":
        fused = next(model.parameters()).is_cuda
        return SGD(groups, lr=train.lr, momentum=train.momentum, fused=fused)
    return (AdamW if train.optimizer == "adamw" else Adam)(groups, lr=train.lr, fused=True)


def build_schedule(optimizer: Optimizer, name: str, steps: int, warmup: float) -> LambdaLR:
    """Builds a linear warm-up over the share `warmup` of all steps, then the schedule `name`.

    `cosine` falls to 0, `constant` stays. Source: Similarity-Dissimilarity, appendix D (cosine with a 0.05
    warm-up).
    """
    warmup_steps = round(steps * warmup)

    def factor(step: int) -> float:
        if step < warmup_steps:
            return (step + 1) / warmup_steps
        if name == "constant":
            return 1.0
        return 0.5 * (1 + math.cos(math.pi * min(1.0, (step - warmup_steps) / max(1, steps - warmup_steps))))

    return LambdaLR(optimizer, factor)


def learning_rates(optimizer: Optimizer) -> dict[str, float]:
    """Returns the current learning rates: `lr`, and `encoder_lr` if the encoder has its own."""
    return {group["name"]: float(group["lr"]) for group in optimizer.param_groups}
