"""Trains the layers of a whole grid of settings at once, each as a linear probe of the same frozen features.

One product computes the logits of all settings, on any device to which the rows are sent batch by batch.
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


class ProbeLayers:
    """The layers of several settings: parts of one tensor, so that one product computes the logits of all.

    `weights` and `biases` have a tensor for each setting, `kept` the numbers of the settings still trained.
    """

    def __init__(self, settings: int, outputs: int, dim: int, device: torch.device) -> None:
        self.kept = list(range(settings))
        self._weight_HOD = torch.zeros(settings, outputs, dim, device=device)
        self._bias_HO = torch.zeros(settings, outputs, device=device)
        self.weights, self.biases = list(self._weight_HOD), list(self._bias_HO)
        self._set_views()

    def _set_views(self) -> None:
        """Makes the kept settings' weights and their gradients views of the stacked tensors."""
        self._gradients = torch.zeros_like(self._weight_HOD), torch.zeros_like(self._bias_HO)
        for place, number in enumerate(self.kept):
            self.weights[number].data, self.biases[number].data = (
                self._weight_HOD[place],
                self._bias_HO[place],
            )
            self.weights[number].grad, self.biases[number].grad = (
                gradient[place] for gradient in self._gradients
            )

    def keep(self, numbers: Sequence[int]) -> None:
        """Stops training the settings not in `numbers`: the optimiser skips tensors without a gradient."""
        for number in set(self.kept) - set(numbers):
            # A copy, so that the whole tensor is freed.
            self.weights[number].data, self.weights[number].grad = self.weights[number].clone(), None
            self.biases[number].data, self.biases[number].grad = self.biases[number].clone(), None
        places = [self.kept.index(number) for number in numbers]
        self.kept = list(numbers)
        self._weight_HOD, self._bias_HO = self._weight_HOD[places], self._bias_HO[places]
        self._set_views()

    def logits(self, x: Tensor) -> Tensor:
        """Returns the logits (b, H, O) of the kept layers for features (b, D), or label vectors (b, O, D)."""
        if x.ndim == 3:
            return torch.einsum("bod,hod->bho", x, self._weight_HOD) + self._bias_HO
        logits_bX = functional.linear(x, self._weight_HOD.flatten(0, 1), self._bias_HO.flatten())
        return logits_bX.reshape(len(x), *self._bias_HO.shape)

    def clear(self) -> None:
        """Sets the gradients to 0."""
        for gradient in self._gradients:
            gradient.zero_()

    def add(self, x: Tensor, gradient_bHO: Tensor) -> None:
        """Adds the gradients that follow from features `x` and the gradient of the logits (b, H, O)."""
        weight_HOD, bias_HO = self._gradients
        bias_HO += gradient_bHO.sum(0)
        if x.ndim == 3:
            weight_HOD += torch.einsum("bho,bod->hod", gradient_bHO, x)
        else:
            weight_HOD.flatten(0, 1).addmm_(gradient_bHO.flatten(1).T, x)

    def sum(self, total: Callable[[Tensor], Tensor]) -> None:
        """Sums the gradients over the processes with the function `total`."""
        for gradient in self._gradients:
            gradient.copy_(total(gradient))


def build_optimizer(
    pairs: Sequence[tuple[float, float]], weights: Sequence[Tensor], biases: Sequence[Tensor]
) -> torch.optim.AdamW:
    """Returns AdamW with one (learning rate, weight decay) of `pairs` per setting; biases have no decay."""
    groups = [
        {"params": [weight], "lr": lr, "weight_decay": decay}
        for weight, (lr, decay) in zip(weights, pairs, strict=True)
    ]
    for rate in sorted({lr for lr, _ in pairs}):
        rate_biases = [bias for bias, (lr, _) in zip(biases, pairs, strict=True) if lr == rate]
        groups.append({"params": rate_biases, "lr": rate, "weight_decay": 0.0})
    return torch.optim.AdamW(groups, fused=True)


NUMBERS_AT_ONCE = 2**27
"""The largest number of weights and logits that are trained at once on a CPU. A larger grid is trained in
parts, with equal results unless settings are stopped."""
NUMBERS_ON_GPU = 2**31
"""The largest number of weights and logits that are trained at once on a GPU: 8 GiB."""
RUNGS = (0.25, 0.5)
"""The shares of the epochs after which the worse half of the settings is stopped."""
LARGE = 2**24
"""The smallest total number of weights for which settings are stopped early; smaller grids take seconds."""

CPU = torch.device("cpu")

Score = Callable[[Tensor, Tensor], float]
"""A function that returns the validation score, larger is better, of weights (O, D) and biases (O,)."""


class Features(Protocol):
    """The features of rows: a tensor (n, D), or label vectors (n, L, D), which may be computed when read.

    A layer on label vectors has logit_l = w_l . x_l + b_l.
    """

    @property
    def shape(self) -> Sequence[int]:
        """The shape (n, D), or (n, L, D) with one vector for each label."""

    @property
    def device(self) -> torch.device:
        """The device of the features, on which layers on label vectors are trained."""

    def __getitem__(self, rows: Tensor, /) -> Tensor:
        """Returns the features of the rows with these numbers (b,)."""


def parts(rows: Tensor, features: Features) -> Sequence[Tensor]:
    """Splits row numbers into parts of at least one row, with at most NUMBERS_AT_ONCE feature values each."""
    return torch.split(rows, max(1, NUMBERS_AT_ONCE // math.prod(features.shape[1:])))


@dataclass(frozen=True)
class ProbeRows:
    """The rows that a linear probe trains on.

    Attributes:
        features: The features of this process's rows.
        targets: The targets of all N rows.
        first: The number of this process's first row; its rows are consecutive.
        total: Sums a tensor over the processes, with equal bits in all of them; None if there is one process.
        device: Where layers on features (n, D) are trained; default: the CPU.
    """

    features: Features
    targets: Targets
    first: int = 0
    total: Callable[[Tensor], Tensor] | None = None
    device: torch.device = CPU

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

    def __post_init__(self) -> None:
        if not (self.pairs() and self.epochs > 0 and self.batch_size > 0):
            raise ValueError(f"no rates, decays, epochs or rows of a batch to train with; found: {self}")

    def pairs(self) -> list[tuple[float, float]]:
        """Returns every pair of learning rate and weight decay, in ascending order."""
        return list(itertools.product(sorted(set(self.lrs)), sorted(set(self.weight_decays))))


class GridTraining:
    """Trains all configurations on the rows with a target.

    `known_N` has the numbers of these rows, counted over the training rows of all processes. `score` is
    called at each of `RUNGS`, in a grid of at least `LARGE` weights.
    """

    def __init__(
        self, rows: ProbeRows, targets: Targets, known_N: Tensor, grid: ProbeGrid, outputs: int, score: Score
    ) -> None:
        self._rows, self._y, self._known_N, self._grid, self._outputs = rows, targets, known_N, grid, outputs
        self._score, self._scores = score, dict[int, list[float]]()
        x = rows.features
        self._x = x.detach() if isinstance(x, Tensor) else x
        self._device = rows.device if len(x.shape) == 2 else x.device
        self._mean, self._scale = self._mean_and_scale(known_N[self._is_own(known_N)])
        large = len(grid.pairs()) * outputs * self._x.shape[-1] >= LARGE
        self._rungs = {math.ceil(grid.epochs * share) for share in RUNGS} - {grid.epochs} if large else set()

    def layers(self) -> tuple[Tensor, Tensor, list[bool]]:
        """Returns weights (H, O, D) and biases (H, O) for features that are not standardised, on the device.

        The list says which configurations were trained to their end, and not stopped.
        """
        pairs, dim = self._grid.pairs(), self._x.shape[-1]
        limit = NUMBERS_ON_GPU if self._device.type == "cuda" else NUMBERS_AT_ONCE
        chunk_size = max(1, limit // (self._outputs * (self._grid.batch_size + 4 * dim)))
        if len(self._x.shape) == 3:  # otherwise each part would compute the label vectors again
            chunk_size = len(pairs)
        results = [
            self._train(pairs[first : first + chunk_size]) for first in range(0, len(pairs), chunk_size)
        ]
        weight_HOD, bias_HO = (
            torch.cat(tensors) for tensors in zip(*(result[:2] for result in results), strict=True)
        )
        return *self._undo_scaling(weight_HOD, bias_HO), list(
            itertools.chain(*(ended for *_, ended in results))
        )

    def _undo_scaling(self, weight: Tensor, bias: Tensor) -> tuple[Tensor, Tensor]:
        """Returns layers for features that are not standardised, from layers for standardised ones."""
        plain_weight = weight / self._scale
        shift = plain_weight @ self._mean if self._mean.ndim == 1 else (plain_weight * self._mean).sum(-1)
        return plain_weight, bias - shift

    def _train(self, pairs: Sequence[tuple[float, float]]) -> tuple[Tensor, Tensor, list[bool]]:
        """Trains some configurations; returns layers for standardised features, and which ran to the end."""
        grid = self._grid
        layers = ProbeLayers(len(pairs), self._outputs, self._x.shape[-1], self._device)
        optimizer = build_optimizer(pairs, layers.weights, layers.biases)
        steps = grid.epochs * math.ceil(len(self._known_N) / grid.batch_size)
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
        generator = torch.Generator().manual_seed(grid.seed)
        for epoch in range(1, grid.epochs + 1):
            order_N = self._known_N[torch.randperm(len(self._known_N), generator=generator)]
            for rows_B in torch.split(order_N, grid.batch_size):
                self._set_gradient(rows_B, layers)
                optimizer.step()
                schedule.step()
            if epoch in self._rungs:
                layers.keep(self._best_layers(epoch, layers))
            if not layers.kept:
                break
        ended = [number in layers.kept for number in range(len(pairs))]
        return torch.stack(layers.weights), torch.stack(layers.biases), ended

    def _best_layers(self, epoch: int, layers: ProbeLayers) -> list[int]:
        """Returns the numbers of the layers in the better half of all scores at this epoch.

        The scores of earlier parts of the grid count, too.
        """
        scores = [
            self._score(*self._undo_scaling(layers.weights[number], layers.biases[number]))
            for number in layers.kept
        ]
        # The average scores are equal in all processes, which must stop the same settings.
        totals = self._rows.sum(torch.tensor([*scores, 1.0], dtype=torch.float64))
        scores = [-math.inf if math.isnan(value) else value for value in (totals[:-1] / totals[-1]).tolist()]
        epoch_scores = self._scores.setdefault(epoch, [])
        epoch_scores += scores
        threshold = sorted(epoch_scores, reverse=True)[math.ceil(len(epoch_scores) / 2) - 1]
        return [number for number, value in zip(layers.kept, scores, strict=True) if value >= threshold]

    def _set_gradient(self, rows_B: Tensor, layers: ProbeLayers) -> None:
        total = self._rows.total
        rows_b = rows_B if total is None else rows_B[self._is_own(rows_B)]
        layers.clear()
        for rows in self._split_rows(rows_b):
            x = (self._read_features(rows) - self._mean) / self._scale
            y = self._take_targets(rows).to(x.device)
            logits = layers.logits(x).requires_grad_()
            loss = _loss(logits, y)
            if len(rows) < len(rows_B):
                loss = loss * (_count_known(y) / _count_known(self._take_targets(rows_B)))
            layers.add(x, *torch.autograd.grad(loss, logits))
        if total is not None:
            layers.sum(total)

    def _read_features(self, rows: Tensor) -> Tensor:
        """Returns the features of this process's rows in float32 on the device."""
        return self._x[rows - self._rows.first].to(self._device, torch.float32, non_blocking=True)

    def _mean_and_scale(self, rows_n: Tensor) -> tuple[Tensor, Tensor]:
        """Returns mean and standard deviation, (D,) or (L, D), of the features of all processes' rows.

        `rows_n` has the numbers of this process's rows with a target. The scale of a constant feature is 1.
        Sums of values and squares are in float64.
        """
        shape, rows = tuple(self._x.shape[1:]), self._rows
        sums = torch.zeros(2, *shape, dtype=torch.float64, device=self._device)
        for part in self._split_rows(rows_n):
            x = self._read_features(part).double()
            sums += torch.stack([x.sum(0), x.square().sum(0)])
        count = rows.sum(torch.tensor(float(len(rows_n)), dtype=torch.float64))
        mean, square = rows.sum(sums) / float(count)
        scale = (square - mean.square()).clamp(min=0).sqrt().float()
        return mean.float(), torch.where(scale > 1e-6 * (1 + mean.abs()), scale, 1)

    def _split_rows(self, rows: Tensor) -> Sequence[Tensor]:
        return parts(rows, self._x) if len(rows) else ()

    def _is_own(self, rows: Tensor) -> Tensor:
        return (rows >= self._rows.first) & (rows < self._rows.first + self._x.shape[0])

    def _take_targets(self, rows: Tensor) -> Targets:
        return self._y.take(rows) if isinstance(self._y, LabelRows) else self._y[rows]


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


def _count_known(y: Targets) -> int:
    """Returns the number of known targets, over which `_loss` takes each configuration's mean."""
    if not isinstance(y, LabelRows):
        return int((y >= 0).sum())
    return len(y) * y.width - (0 if y.unknown is None else len(y.unknown.columns))
