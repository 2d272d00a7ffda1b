"""Trains the layers of a whole grid of settings at once, each as a linear probe of the same frozen features.

Training runs in one process, or in several processes of which each holds a part of the rows.

Shapes: N rows, n rows of this process, B rows of a batch, b of these in this process, D features, L labels, H
configurations, O outputs of a layer, X = H * O.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor
from torch.nn import functional

from mlcl.evaluation.tasks import Targets
from mlcl.labels import LabelRows

NUMBERS_AT_ONCE = 2**27
"""The largest number of weights and logits that are trained at once; a larger grid is trained in parts, with
equal results."""


class Features(Protocol):
    """The features of rows: a tensor (n, D), or label vectors (n, L, D), which may be computed when read.

    A layer on label vectors has logit_l = w_l . x_l + b_l.
    """

    @property
    def shape(self) -> Sequence[int]:
        """(n, D), or (n, L, D) with one vector for each label."""

    @property
    def device(self) -> torch.device:
        """The device of the features, on which layers on label vectors are trained."""

    def __getitem__(self, rows: Tensor, /) -> Tensor:
        """Returns the features of the rows with these numbers (b,)."""


def parts(rows: Tensor, features: Features) -> Sequence[Tensor]:
    """Splits row numbers into parts whose features are at most NUMBERS_AT_ONCE numbers."""
    return torch.split(rows, max(1, NUMBERS_AT_ONCE // math.prod(features.shape[1:])))


@dataclass(frozen=True)
class ProbeRows:
    """The rows that a linear probe trains on.

    Args:
        features: The features of this process's rows.
        targets: The targets of all N rows.
        first: The number of this process's first row; its rows are consecutive.
        total: Sums a tensor over the processes, with equal bits in all of them; None if there is one process.
    """

    features: Features
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


class GridTraining:
    """Trains all configurations on the rows with a target.

    `known_N` has the numbers of these rows, counted over the training rows of all processes.
    """

    def __init__(
        self, rows: ProbeRows, targets: Targets, known_N: Tensor, grid: ProbeGrid, outputs: int
    ) -> None:
        self._rows, self._y, self._known_N, self._grid, self._outputs = rows, targets, known_N, grid, outputs
        x = rows.features
        self._x = x.detach().float().cpu() if isinstance(x, Tensor) and x.ndim == 2 else x
        self._mean, self._scale = self._standard(known_N[self._is_own(known_N)])

    def layers(self) -> tuple[Tensor, Tensor]:
        """Returns weights (H, O, D) and biases (H, O) for features that are not standardised, on the CPU."""
        pairs, dim = self._grid.pairs(), self._x.shape[-1]
        at_once = max(1, NUMBERS_AT_ONCE // (self._outputs * (self._grid.batch_size + 4 * dim)))
        if len(self._x.shape) == 3:  # each part of the grid would compute the label vectors anew
            at_once = len(pairs)
        trained = [self._train(pairs[first : first + at_once]) for first in range(0, len(pairs), at_once)]
        weight_HOD = torch.cat([weight for weight, _ in trained]) / self._scale
        shift = weight_HOD @ self._mean if self._mean.ndim == 1 else (weight_HOD * self._mean).sum(-1)
        return weight_HOD.cpu(), (torch.cat([bias for _, bias in trained]) - shift).cpu()

    def _train(self, pairs: Sequence[tuple[float, float]]) -> tuple[Tensor, Tensor]:
        """Trains some configurations as one layer; returns weights and biases for standardised features."""
        grid, shape, device = self._grid, (self._outputs, self._x.shape[-1]), self._x.device
        weights = [torch.zeros(shape, device=device, requires_grad=True) for _ in pairs]
        biases = [torch.zeros(self._outputs, device=device, requires_grad=True) for _ in pairs]
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
        own_b = rows_B if total is None else rows_B[self._is_own(rows_B)]
        for rows in self._parts(own_b):
            x = (self._x[rows - self._rows.first] - self._mean) / self._scale
            y = self._targets(rows).to(x.device)
            loss = _loss(self._logits(x, weights, biases), y)
            if len(rows) < len(rows_B):
                loss = loss * (_known_entries(y) / _known_entries(self._targets(rows_B)))
            torch.autograd.backward(loss)
        if total is not None:
            _sum_gradients([*weights, *biases], total)

    def _logits(self, x: Tensor, weights: Sequence[Tensor], biases: Sequence[Tensor]) -> Tensor:
        """Returns the logits (b, H, O) of all layers for features (b, D), or for label vectors (b, O, D)."""
        if x.ndim == 3:
            layers = zip(weights, biases, strict=True)
            return torch.stack([torch.einsum("bod,od->bo", x, w) + bias_O for w, bias_O in layers], 1)
        logits_bX = functional.linear(x, torch.cat(list(weights)), torch.cat(list(biases)))
        return logits_bX.reshape(len(x), len(weights), self._outputs)

    def _standard(self, own_n: Tensor) -> tuple[Tensor, Tensor]:
        """Returns mean and standard deviation, (D,) or (L, D), of the features of all processes' rows.

        `own_n` has the rows with a target of this process. The scale of a constant feature is 1. Sums of
        values and squares are in float64.
        """
        shape, rows = tuple(self._x.shape[1:]), self._rows
        sums = torch.zeros(2, *shape, dtype=torch.float64, device=self._x.device)
        for part in self._parts(own_n):
            x = self._x[part - rows.first].double()
            sums += torch.stack([x.sum(0), x.square().sum(0)])
        count = rows.sum(torch.tensor(float(len(own_n)), dtype=torch.float64))
        mean, square = rows.sum(sums) / float(count)
        scale = (square - mean.square()).clamp(min=0).sqrt().float()
        return mean.float(), torch.where(scale > 1e-6 * (1 + mean.abs()), scale, 1)

    def _parts(self, rows: Tensor) -> Sequence[Tensor]:
        return parts(rows, self._x) if len(rows) else ()

    def _is_own(self, rows: Tensor) -> Tensor:
        """Whether this process holds each of the rows."""
        return (rows >= self._rows.first) & (rows < self._rows.first + self._x.shape[0])

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
