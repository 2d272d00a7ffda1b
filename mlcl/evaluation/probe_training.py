"""The training of many linear layers at once on frozen features, in one process or over several.

Shapes: N rows with a target, n rows of this process, B of a batch, b of them in this process, D features,
H configurations, O outputs of a layer, X = H * O.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from mlcl.evaluation.tasks import Targets
from mlcl.labels import LabelRows

NUMBERS_AT_ONCE = 2**27
"""Weights and logits that are trained together; a larger grid is trained in parts, with the same result."""


@dataclass(frozen=True)
class ProbeRows:
    """Features (n, D) of the rows from `first` on, and the targets of all rows.

    One process holds all rows. Of several, each holds consecutive rows of its own, and `total` adds a tensor
    up over the processes, with the same bits in each.
    """

    features: Tensor
    targets: Targets
    first: int = 0
    total: Callable[[Tensor], Tensor] | None = None

    def sum(self, value: Tensor) -> Tensor:
        """The sum over processes."""
        return value if self.total is None else self.total(value)


@dataclass(frozen=True)
class ProbeGrid:
    """How the layers are trained: every learning rate with every weight decay, all on the same batches."""

    lrs: Sequence[float]
    weight_decays: Sequence[float]
    epochs: int
    batch_size: int
    seed: int

    def pairs(self) -> list[tuple[float, float]]:
        """Every (learning rate, weight decay), in ascending order."""
        return list(itertools.product(sorted(set(self.lrs)), sorted(set(self.weight_decays))))


class GridTraining:
    """Trains the configurations on the rows `known_N`, whose numbers count all training rows."""

    def __init__(
        self, rows: ProbeRows, targets: Targets, known_N: Tensor, grid: ProbeGrid, outputs: int
    ) -> None:
        self._rows, self._y, self._known_N, self._grid, self._outputs = rows, targets, known_N, grid, outputs
        self._x_nD = rows.features.detach().float().cpu()
        own_n = known_N[self._held(known_N)] - rows.first
        self._mean_D, self._scale_D = _standard(self._x_nD, own_n, rows)

    def layers(self) -> tuple[Tensor, Tensor]:
        """Weights (H, O, D) and biases (H, O) that take features as they are."""
        pairs, dim = self._grid.pairs(), self._x_nD.shape[1]
        at_once = max(1, NUMBERS_AT_ONCE // (self._outputs * (self._grid.batch_size + 4 * dim)))
        parts = [self._train(pairs[first : first + at_once]) for first in range(0, len(pairs), at_once)]
        weight_HOD = torch.cat([weight for weight, _ in parts]) / self._scale_D
        bias_HO = torch.cat([bias for _, bias in parts])
        return weight_HOD, bias_HO - weight_HOD @ self._mean_D

    def _train(self, pairs: Sequence[tuple[float, float]]) -> tuple[Tensor, Tensor]:
        """The same of some configurations for standardised features, as one layer of H * O outputs."""
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
        """Leaves the gradient of the batch's loss in the parameters."""
        total = self._rows.total
        rows_b = rows_B if total is None else rows_B[self._held(rows_B)]
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

    def _held(self, rows: Tensor) -> Tensor:
        """Which of the rows this process holds."""
        return (rows >= self._rows.first) & (rows < self._rows.first + len(self._x_nD))

    def _targets(self, rows: Tensor) -> Targets:
        return self._y.take(rows) if isinstance(self._y, LabelRows) else self._y[rows]


def _sum_gradients(parameters: Sequence[Tensor], total: Callable[[Tensor], Tensor]) -> None:
    """Adds the gradients up over the processes, of which some may have none."""
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
    """Sum over configurations of the mean over known targets."""
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
    """The number of targets over which `_loss` takes each configuration's mean."""
    if not isinstance(y, LabelRows):
        return int((y >= 0).sum())
    return len(y) * y.width - (0 if y.unknown is None else len(y.unknown.columns))


def _standard(x_nD: Tensor, known_n: Tensor, rows: ProbeRows) -> tuple[Tensor, Tensor]:
    """Mean and deviation (D,) of the features of all rows with a target; a constant feature keeps its scale.

    From those of each process's rows: mean = sum_r n_r mean_r / N, and
    variance = sum_r n_r (deviation_r^2 + (mean_r - mean)^2) / N, in float64.
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
