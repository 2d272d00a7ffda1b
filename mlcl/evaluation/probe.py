"""The linear probe: a linear layer on frozen features; the layers of a whole grid of settings train at once.

Training runs in one process, or in several processes of which each holds a part of the rows.

Shapes: N rows, n rows of this process, B rows of a batch, b of these in this process, D features, H
configurations, O outputs of a layer (C classes, L labels, or A * C), X = H * O.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from mlcl.evaluation.decision import Decision
from mlcl.evaluation.scores import AT_HALF, Scoring, evaluate
from mlcl.evaluation.tasks import (
    NO_FACTS,
    Array,
    LabelFacts,
    Targets,
    Task,
    as_classes,
    as_rows,
    known_rows,
)
from mlcl.labels import LabelRows

NUMBERS_AT_ONCE = 2**27
"""The largest number of weights and logits that are trained at once; a larger grid is trained in parts, with
equal results."""


@dataclass(frozen=True)
class ProbeRows:
    """The rows that a linear probe trains on.

    Args:
        features: The features (n, D) of this process's rows.
        targets: The targets of all N rows.
        first: The number of this process's first row; its rows are consecutive.
        total: Sums a tensor over the processes, with equal bits in all of them; None if there is one process.
    """

    features: Tensor
    targets: Targets
    first: int = 0
    total: Callable[[Tensor], Tensor] | None = None

    def sum(self, value: Tensor) -> Tensor:
        """Returns the sum of a tensor over the processes."""
        return value if self.total is None else self.total(value)


@dataclass(frozen=True)
class ProbeGrid:
    """The configurations of a linear probe: every combination of a learning rate and a weight decay.

    All configurations see the same batches, shuffled by `seed`.
    """

    lrs: Sequence[float]
    weight_decays: Sequence[float]
    epochs: int
    batch_size: int
    seed: int

    def pairs(self) -> list[tuple[float, float]]:
        """Returns every pair of learning rate and weight decay, in ascending order."""
        return list(itertools.product(sorted(set(self.lrs)), sorted(set(self.weight_decays))))


@dataclass(frozen=True)
class ProbeResult:
    """The trained layer that is best on validation.

    Args:
        weight: The weights (C, D), (L, D) or (A, C, D), for features that are not standardised.
        bias: The biases (C,), (L,) or (A, C).
        lr: The learning rate of the layer.
        weight_decay: The weight decay of the layer.
        metrics: All validation metrics of the layer.
        table: The job's metric for every configuration, a structured array with the fields `lr`,
            `weight_decay` and the metric's name.
        task: The kind of task.
        decision: The rule that says which labels are predicted, chosen on validation.
    """

    weight: Tensor
    bias: Tensor
    lr: float
    weight_decay: float
    metrics: dict[str, float]
    table: Array
    task: Task
    decision: Decision = AT_HALF


def linear_probe(
    train: ProbeRows,
    val_features: Tensor,
    val_targets: Targets,
    *,
    task: Task,
    n_classes: int,
    grid: ProbeGrid,
    scoring: Scoring,
    val_facts: LabelFacts = NO_FACTS,
) -> ProbeResult:
    """Trains every configuration from zero by AdamW with a cosine schedule; the best on validation wins.

    Features are standardised by the training rows' mean and standard deviation; the returned layer includes
    this step and takes features that are not standardised. All configurations see the same batches; their
    losses are added up, so each layer gets the gradient of its own loss. The loss is cross-entropy, or binary
    cross-entropy for labels. Rows without a target and unknown entries are left out; the bias has no weight
    decay. Of equal configurations the first wins.

    With several processes each one contributes the gradient of its own rows to every batch. The batches are
    those of a single process, and the layer is equal up to the rounding of sums. Every process returns the
    same result.
    Source: Similarity-Dissimilarity, appendix D (a linear layer on the frozen encoder).

    Args:
        train: The training rows.
        val_features: The features of all validation rows (N, D), in every process.
        val_targets: The targets of all validation rows.
        task: The kind of task.
        n_classes: The number of classes C, or of labels L.
        grid: The configurations.
        scoring: The metric, and how labels are predicted.
        val_facts: Frequency bands and a hierarchy of the labels, which some metrics need.

    Raises:
        ValueError: No training row has a target, or every configuration diverged.

    Example:
        >>> x, y = torch.tensor([[-1.0], [-2.0], [1.0], [2.0]]), torch.tensor([0, 0, 1, 1])
        >>> grid = ProbeGrid(lrs=[0.1], weight_decays=[0.0], epochs=10, batch_size=4, seed=0)
        >>> result = linear_probe(ProbeRows(x, y), x, y, task="single", n_classes=2, grid=grid,
        ...                       scoring=Scoring("accuracy", "max"))
        >>> result.metrics["accuracy"]
        1.0
    """
    scores, best = [], None
    for layer in _train_layers(train, task, n_classes, grid):
        scores.append(_score(layer, val_features, val_targets, scoring, val_facts))
        if not math.isnan(scores[-1]) and (best is None or scoring.better(scores[-1], best[0])):
            best = (scores[-1], layer)
    if best is None:
        raise ValueError("every configuration of the linear probe diverged")
    layer = best[1]
    predicted = predict(layer, val_features)
    decision = scoring.decide(task, predicted, val_targets)
    metrics = evaluate(task, predicted, val_targets, decision, scoring.aspects, facts=val_facts)
    fields = [("lr", np.float64), ("weight_decay", np.float64), (scoring.metric, np.float64)]
    rows = [(*pair, score) for pair, score in zip(grid.pairs(), scores, strict=True)]
    return replace(layer, decision=decision, metrics=metrics, table=np.array(rows, dtype=fields))


@torch.no_grad()
def predict(result: ProbeResult, features: Tensor) -> Tensor:
    """Returns the probabilities (N, C), (N, L) or (N, A, C) float32 of a probe for features (N, D)."""
    logits_NO = functional.linear(features.float().cpu(), result.weight.flatten(0, -2), result.bias.flatten())
    logits = logits_NO.reshape(-1, *result.bias.shape)
    return logits.sigmoid() if result.task == "multi_label" else logits.softmax(-1)


def _train_layers(train: ProbeRows, task: Task, n_classes: int, grid: ProbeGrid) -> Iterator[ProbeResult]:
    """Yields the trained layer of each configuration, without metrics."""
    known_N = torch.from_numpy(np.flatnonzero(known_rows(task, train.targets)))
    if not len(known_N):
        raise ValueError("no training row has a target")
    y = as_rows(train.targets) if task == "multi_label" else torch.from_numpy(as_classes(train.targets))
    shape = (n_classes,) if isinstance(y, LabelRows) or y.ndim == 1 else (y.shape[1], n_classes)
    training = _GridTraining(train, y, known_N, grid, math.prod(shape))
    for (lr, decay), weight_OD, bias_O in zip(grid.pairs(), *training.layers(), strict=True):
        weight, bias = weight_OD.reshape(*shape, -1), bias_O.reshape(shape)
        yield ProbeResult(weight, bias, lr, decay, {}, np.empty(0), task)


def _score(
    layer: ProbeResult, features: Tensor, targets: Targets, scoring: Scoring, facts: LabelFacts
) -> float:
    probabilities = predict(layer, features)
    if not torch.isfinite(probabilities).all():
        return math.nan
    return scoring.evaluate(layer.task, probabilities, targets, [scoring.metric], facts)[scoring.metric]


class _GridTraining:
    """Trains all configurations on the rows with a target.

    `known_N` has the numbers of these rows, counted over the training rows of all processes.
    """

    def __init__(
        self, rows: ProbeRows, targets: Targets, known_N: Tensor, grid: ProbeGrid, outputs: int
    ) -> None:
        self._rows, self._y, self._known_N, self._grid, self._outputs = rows, targets, known_N, grid, outputs
        self._x_nD = rows.features.detach().float().cpu()
        own_n = known_N[self._is_own(known_N)] - rows.first
        self._mean_D, self._scale_D = _standard(self._x_nD, own_n, rows)

    def layers(self) -> tuple[Tensor, Tensor]:
        """Returns weights (H, O, D) and biases (H, O) for features that are not standardised."""
        pairs, dim = self._grid.pairs(), self._x_nD.shape[1]
        at_once = max(1, NUMBERS_AT_ONCE // (self._outputs * (self._grid.batch_size + 4 * dim)))
        parts = [self._train(pairs[first : first + at_once]) for first in range(0, len(pairs), at_once)]
        weight_HOD = torch.cat([weight for weight, _ in parts]) / self._scale_D
        bias_HO = torch.cat([bias for _, bias in parts])
        return weight_HOD, bias_HO - weight_HOD @ self._mean_D

    def _train(self, pairs: Sequence[tuple[float, float]]) -> tuple[Tensor, Tensor]:
        """Trains some configurations as one layer; returns weights and biases for standardised features."""
        grid, dim = self._grid, self._x_nD.shape[1]
        weights = [torch.zeros(self._outputs, dim, requires_grad=True) for _ in pairs]
        biases = [torch.zeros(self._outputs, requires_grad=True) for _ in pairs]
        optimizer = _optimizer(pairs, weights, biases)
        steps = grid.epochs * math.ceil(len(self._known_N) / grid.batch_size)
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
        generator = torch.Generator().manual_seed(grid.seed)
        for _ in range(grid.epochs):
            order_N = self._known_N[torch.randperm(len(self._known_N), generator=generator)]
            for rows_B in torch.split(order_N, grid.batch_size):
                optimizer.zero_grad()
                self._gradient(rows_B, weights, biases)
                optimizer.step()
                schedule.step()
        return torch.stack(weights).detach(), torch.stack(biases).detach()

    def _gradient(self, rows_B: Tensor, weights: Sequence[Tensor], biases: Sequence[Tensor]) -> None:
        """Sets the parameters' gradients to the gradient of the batch's loss."""
        total = self._rows.total
        rows_b = rows_B if total is None else rows_B[self._is_own(rows_B)]
        if len(rows_b):
            x_bD = (self._x_nD[rows_b - self._rows.first] - self._mean_D) / self._scale_D
            logits_bX = functional.linear(x_bD, torch.cat(list(weights)), torch.cat(list(biases)))
            y = self._targets(rows_b)
            loss = _loss(logits_bX.reshape(len(rows_b), len(weights), self._outputs), y)
            if total is not None:
                loss = loss * (_known_entries(y) / _known_entries(self._targets(rows_B)))
            torch.autograd.backward(loss)
        if total is not None:
            _sum_gradients([*weights, *biases], total)

    def _is_own(self, rows: Tensor) -> Tensor:
        """Whether this process holds each of the rows."""
        return (rows >= self._rows.first) & (rows < self._rows.first + len(self._x_nD))

    def _targets(self, rows: Tensor) -> Targets:
        return self._y.take(rows) if isinstance(self._y, LabelRows) else self._y[rows]


def _sum_gradients(parameters: Sequence[Tensor], total: Callable[[Tensor], Tensor]) -> None:
    """Sums the gradients over the processes; a process without rows in the batch has none."""
    own = [torch.zeros_like(p) if p.grad is None else p.grad for p in parameters]
    summed = total(torch.cat([gradient.flatten() for gradient in own]))
    for parameter, gradient in zip(
        parameters, torch.split(summed, [p.numel() for p in parameters]), strict=True
    ):
        parameter.grad = gradient.reshape(parameter.shape)


def _optimizer(
    pairs: Sequence[tuple[float, float]], weights: Sequence[Tensor], biases: Sequence[Tensor]
) -> torch.optim.AdamW:
    groups = [
        {"params": [weight], "lr": lr, "weight_decay": decay}
        for weight, (lr, decay) in zip(weights, pairs, strict=True)
    ]
    for rate in sorted({lr for lr, _ in pairs}):
        same = [bias for bias, (lr, _) in zip(biases, pairs, strict=True) if lr == rate]
        groups.append({"params": same, "lr": rate, "weight_decay": 0.0})
    return torch.optim.AdamW(groups, fused=True)


def _loss(logits_BHO: Tensor, y: Targets) -> Tensor:
    """Returns the sum over configurations of the mean loss over known targets."""
    configurations = logits_BHO.shape[1]
    if isinstance(y, LabelRows):
        y_BHL = y.dense().unsqueeze(1).expand_as(logits_BHO)
        known_BL = y.known()
        if known_BL is None:
            return functional.binary_cross_entropy_with_logits(logits_BHO, y_BHL) * configurations
        terms_BHL = functional.binary_cross_entropy_with_logits(logits_BHO, y_BHL, reduction="none")
        return terms_BHL.where(known_BL.unsqueeze(1), 0).sum() / known_BL.sum().clamp(min=1)
    y_BA = y.reshape(len(y), -1)
    logits = logits_BHO.reshape(len(y), configurations, y_BA.shape[1], -1)
    y_BHA = y_BA.unsqueeze(1).expand(-1, configurations, -1)
    return functional.cross_entropy(logits.flatten(0, 2), y_BHA.reshape(-1), ignore_index=-1) * configurations


def _known_entries(y: Targets) -> int:
    """Returns the number of known targets, over which `_loss` takes each configuration's mean."""
    if not isinstance(y, LabelRows):
        return int((y >= 0).sum())
    return len(y) * y.width - (0 if y.unknown is None else len(y.unknown.columns))


def _standard(x_nD: Tensor, known_n: Tensor, rows: ProbeRows) -> tuple[Tensor, Tensor]:
    """Returns mean and standard deviation (D,) of the features over all processes' rows with a target.

    The scale of a constant feature is 1. Both are computed in float64 from the mean and deviation of each
    process's n_r rows: mean = sum_r n_r mean_r / N, variance = sum_r n_r (deviation_r^2 + (mean_r - mean)^2)
    / N.
    """
    own_nD = x_nD if len(known_n) == len(x_nD) else x_nD[known_n]
    n, dim = len(own_nD), x_nD.shape[1]
    own_mean_D, own_std_D = torch.zeros(dim).double(), torch.zeros(dim).double()
    if n:
        own_mean_D, own_std_D = own_nD.mean(0).double(), own_nD.std(0, correction=0).double()
    count = rows.sum(torch.tensor(float(n), dtype=torch.float64))
    mean_D = rows.sum(n * own_mean_D) / count
    variance_D = rows.sum(n * (own_std_D**2 + (own_mean_D - mean_D) ** 2)) / count
    mean_D, scale_D = mean_D.float(), variance_D.sqrt().float()
    return mean_D, torch.where(scale_D > 1e-6 * (1 + mean_D.abs()), scale_D, 1)
