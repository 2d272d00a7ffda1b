"""The linear probe: one linear layer on frozen features, a whole grid of them trained at once.

Shapes: N rows, B of a batch, D features, H configurations, O outputs (C classes, L labels, or A * C).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from mlcl.evaluation.scores import evaluate
from mlcl.evaluation.tasks import Array, Targets, Task, as_classes, as_rows, known_rows
from mlcl.labels import LabelRows

NUMBERS_AT_ONCE = 2**27
"""Weights and logits that are trained together; a larger grid is trained in parts, with the same result."""


@dataclass(frozen=True)
class ProbeResult:
    """The best layer on validation, what it scores there, and the metric of every configuration.

    `weight` (C, D), (L, D) or (A, C, D) and `bias` without the last axis take features as they are. `table`
    is a structured array with fields `lr`, `weight_decay` and the metric's name.
    """

    weight: Tensor
    bias: Tensor
    lr: float
    weight_decay: float
    metrics: dict[str, float]
    table: Array
    task: Task


def linear_probe(
    train_features: Tensor,
    train_targets: Targets,
    val_features: Tensor,
    val_targets: Targets,
    *,
    task: Task,
    n_classes: int,
    lrs: Sequence[float],
    weight_decays: Sequence[float],
    epochs: int,
    batch_size: int,
    seed: int,
    metric: str,
    mode: Literal["max", "min"],
    threshold: float = 0.5,
    aspects: Sequence[str] | None = None,
) -> ProbeResult:
    """Trains every (lr, weight decay) from zero, AdamW and a cosine schedule; the best on validation wins.

    Features (N, D) float32 are standardised by the training rows' mean and deviation, which the returned
    layer has folded in. All configurations see the same batches, shuffled by `seed`; their losses are added
    up, so that none touches another's gradient. Cross-entropy, or binary cross-entropy for labels. Rows
    without a target are left out; weight decay spares the bias. Of equal configurations the first wins.

    Raises ValueError where no training row has a target or every configuration diverged.
    Source: Similarity-Dissimilarity, appendix D (a linear layer on the frozen encoder).
    """
    x_ND, y = _known(task, train_features, train_targets)
    shape = (n_classes,) if isinstance(y, LabelRows) or y.ndim == 1 else (y.shape[1], n_classes)
    mean_D, scale_D = _standard(x_ND)
    grid = list(itertools.product(sorted(set(lrs)), sorted(set(weight_decays))))
    weight_HOD, bias_HO = _train_grid(
        (x_ND - mean_D) / scale_D, y, grid, math.prod(shape), epochs, batch_size, seed
    )
    weight_HOD = weight_HOD / scale_D
    bias_HO = bias_HO - weight_HOD @ mean_D
    scores, best = [], None
    for (lr, decay), weight_OD, bias_O in zip(grid, weight_HOD, bias_HO, strict=True):
        layer = ProbeResult(
            weight_OD.reshape(*shape, -1), bias_O.reshape(shape), lr, decay, {}, np.empty(0), task
        )
        scores.append(_score(layer, val_features, val_targets, metric, threshold, aspects))
        if not math.isnan(scores[-1]) and (best is None or _better(scores[-1], best[0], mode)):
            best = (scores[-1], layer)
    if best is None:
        raise ValueError("every configuration of the linear probe diverged")
    layer = best[1]
    metrics = evaluate(task, predict(layer, val_features), val_targets, threshold, aspects)
    table = _table(grid, metric, scores)
    return ProbeResult(layer.weight, layer.bias, layer.lr, layer.weight_decay, metrics, table, task)


@torch.no_grad()
def predict(result: ProbeResult, features: Tensor) -> Tensor:
    """Probabilities (N, C), (N, L) or (N, A, C) float32 of features (N, D)."""
    logits_NO = functional.linear(features.float().cpu(), result.weight.flatten(0, -2), result.bias.flatten())
    logits = logits_NO.reshape(-1, *result.bias.shape)
    return logits.sigmoid() if result.task == "multi_label" else logits.softmax(-1)


def _train_grid(
    x_ND: Tensor,
    y: Targets,
    grid: Sequence[tuple[float, float]],
    outputs: int,
    epochs: int,
    batch_size: int,
    seed: int,
) -> tuple[Tensor, Tensor]:
    each = outputs * (batch_size + 4 * x_ND.shape[1])
    at_once = max(1, NUMBERS_AT_ONCE // each)
    parts = [
        _train(x_ND, y, grid[first : first + at_once], outputs, epochs, batch_size, seed)
        for first in range(0, len(grid), at_once)
    ]
    return torch.cat([weight for weight, _ in parts]), torch.cat([bias for _, bias in parts])


def _train(
    x_ND: Tensor,
    y: Targets,
    grid: Sequence[tuple[float, float]],
    outputs: int,
    epochs: int,
    batch_size: int,
    seed: int,
) -> tuple[Tensor, Tensor]:
    """Weights (H, O, D) and biases (H, O) of the configurations, as one layer of H * O outputs."""
    weights = [torch.zeros(outputs, x_ND.shape[1], requires_grad=True) for _ in grid]
    biases = [torch.zeros(outputs, requires_grad=True) for _ in grid]
    optimizer = _optimizer(grid, weights, biases)
    steps = epochs * math.ceil(len(x_ND) / batch_size)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    generator = torch.Generator().manual_seed(seed)
    for _ in range(epochs):
        order_N = torch.randperm(len(x_ND), generator=generator)
        for rows in torch.split(order_N, batch_size):
            logits_BO = functional.linear(x_ND[rows], torch.cat(weights), torch.cat(biases))
            target = y.take(rows) if isinstance(y, LabelRows) else y[rows]
            optimizer.zero_grad()
            torch.autograd.backward(_loss(logits_BO.reshape(len(rows), len(grid), outputs), target))
            optimizer.step()
            schedule.step()
    return torch.stack(weights).detach(), torch.stack(biases).detach()


def _optimizer(
    grid: Sequence[tuple[float, float]], weights: Sequence[Tensor], biases: Sequence[Tensor]
) -> torch.optim.AdamW:
    groups = [
        {"params": [weight], "lr": lr, "weight_decay": decay}
        for weight, (lr, decay) in zip(weights, grid, strict=True)
    ]
    for rate in sorted({lr for lr, _ in grid}):
        same = [bias for bias, (lr, _) in zip(biases, grid, strict=True) if lr == rate]
        groups.append({"params": same, "lr": rate, "weight_decay": 0.0})
    return torch.optim.AdamW(groups, fused=True)


def _loss(logits_BHO: Tensor, y: Targets) -> Tensor:
    """Sum over configurations of the mean over known targets."""
    configurations = logits_BHO.shape[1]
    if isinstance(y, LabelRows):
        y_BHL = y.dense().unsqueeze(1).expand_as(logits_BHO)
        return functional.binary_cross_entropy_with_logits(logits_BHO, y_BHL) * configurations
    y_BA = y.reshape(len(y), -1)
    logits = logits_BHO.reshape(len(y), configurations, y_BA.shape[1], -1)
    y_BHA = y_BA.unsqueeze(1).expand(-1, configurations, -1)
    return functional.cross_entropy(logits.flatten(0, 2), y_BHA.reshape(-1), ignore_index=-1) * configurations


def _known(task: Task, features: Tensor, targets: Targets) -> tuple[Tensor, Targets]:
    rows = torch.from_numpy(np.flatnonzero(known_rows(task, targets)))
    if not len(rows):
        raise ValueError("no training row has a target")
    x_ND = features.detach().float().cpu()[rows]
    if task == "multi_label":
        return x_ND, as_rows(targets)
    return x_ND, torch.from_numpy(as_classes(targets))[rows]


def _standard(x_ND: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and deviation; a constant feature keeps its scale."""
    mean_D, scale_D = x_ND.mean(0), x_ND.std(0, correction=0)
    return mean_D, torch.where(scale_D > 1e-6 * (1 + mean_D.abs()), scale_D, 1)


def _score(
    layer: ProbeResult,
    features: Tensor,
    targets: Targets,
    metric: str,
    threshold: float,
    aspects: Sequence[str] | None,
) -> float:
    probabilities = predict(layer, features)
    if not torch.isfinite(probabilities).all():
        return math.nan
    return evaluate(layer.task, probabilities, targets, threshold, aspects, [metric])[metric]


def _better(value: float, than: float, mode: str) -> bool:
    return value > than if mode == "max" else value < than


def _table(grid: Sequence[tuple[float, float]], metric: str, scores: Sequence[float]) -> Array:
    fields = [("lr", np.float64), ("weight_decay", np.float64), (metric, np.float64)]
    return np.array([(*setting, score) for setting, score in zip(grid, scores, strict=True)], dtype=fields)
