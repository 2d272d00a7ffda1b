"""The linear probe: a linear layer on frozen features, the best of a grid of settings.

Shapes: N rows, M rows to predict, D features, C classes, L labels, A aspects, O outputs of a layer (C, L, or
A * C).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from mlcl.evaluation.decision import Decision
from mlcl.evaluation.probe_training import (
    NUMBERS_AT_ONCE,
    Features,
    GridTraining,
    ProbeGrid,
    ProbeRows,
    parts,
)
from mlcl.evaluation.scores import AT_HALF, Scoring, evaluate
from mlcl.evaluation.tasks import (
    NO_FACTS,
    Array,
    LabelFacts,
    Targets,
    Task,
    as_classes,
    as_rows,
    check_task,
    known_rows,
)
from mlcl.labels import LabelRows


@dataclass(frozen=True)
class ProbeResult:
    """The trained layer that is best on validation.

    Attributes:
        weight: The weights (C, D), (L, D) or (A, C, D) on the CPU, for features that are not standardised.
        bias: The biases (C,), (L,) or (A, C).
        lr: The learning rate of the layer.
        weight_decay: The weight decay of the layer.
        metrics: All validation metrics of the layer.
        table: The metric of `scoring` for every configuration after its last epoch: a structured array with
            the fields `lr`, `weight_decay` and the metric's name.
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
    val_features: Features,
    val_targets: Targets,
    *,
    task: Task,
    n_classes: int,
    grid: ProbeGrid,
    scoring: Scoring,
    val_facts: LabelFacts = NO_FACTS,
) -> ProbeResult:
    """Trains every configuration from zero by AdamW with a cosine schedule; returns the best on validation.

    Features are standardised by the training rows' mean and standard deviation; the returned layer includes
    this step and takes features that are not standardised. All configurations see the same batches. In large
    grids the worse half on validation is stopped after a quarter, and again after a half, of the epochs. The
    loss is cross-entropy, or binary cross-entropy for labels. Rows without a target and unknown entries are
    left out; the bias has no weight decay. Of equally good configurations the first wins.

    With several processes each one contributes the gradient of its own rows to every batch. The batches are
    those of a single process, and the layer is equal up to the rounding of sums. Every process returns the
    same result.
    Source: Similarity-Dissimilarity, appendix D (a linear layer on the frozen encoder).

    Args:
        train: The training rows.
        val_features, val_targets: Features and targets of all validation rows, in every process.
        task: The kind of task.
        n_classes: The number of classes C, or of labels L.
        grid: The configurations.
        scoring: The metric, and how labels are predicted.
        val_facts: Frequency bands and a hierarchy of the labels, which some metrics need.

    Raises:
        ValueError: No training row has a target, every configuration diverged, or rows do not fit.

    Example:
        >>> x, y = torch.tensor([[-1.0], [-2.0], [1.0], [2.0]]), torch.tensor([0, 0, 1, 1])
        >>> grid = ProbeGrid(lrs=[0.1], weight_decays=[0.0], epochs=10, batch_size=4, seed=0)
        >>> result = linear_probe(ProbeRows(x, y), x, y, task="single", n_classes=2, grid=grid,
        ...                       scoring=Scoring("accuracy", "max"))
        >>> result.metrics["accuracy"]
        1.0
    """
    _check_rows(train, val_features, task, n_classes)
    score = partial(_score, features=val_features, targets=val_targets, scoring=scoring, facts=val_facts)
    entries = [
        (layer, ended, score(layer)) for layer, ended in _train_layers(train, task, n_classes, grid, score)
    ]
    finished_layers = [(value, layer) for layer, ended, value in entries if ended and not math.isnan(value)]
    if not finished_layers:
        raise ValueError(f"every configuration of the linear probe diverged, or has no {scoring.metric}")
    best = max(finished_layers, key=lambda pair: pair[0])[1]
    layer = replace(best, weight=best.weight.cpu(), bias=best.bias.cpu())
    probabilities = predict(layer, val_features)
    decision = scoring.decide(task, probabilities, val_targets)
    metrics = evaluate(task, probabilities, val_targets, decision, scoring.aspects, facts=val_facts)
    fields = [("lr", np.float64), ("weight_decay", np.float64), (scoring.metric, np.float64)]
    rows = [(*pair, scoring.sign * entry[2]) for pair, entry in zip(grid.pairs(), entries, strict=True)]
    return replace(layer, decision=decision, metrics=metrics, table=np.array(rows, dtype=fields))


@torch.no_grad()
def predict(result: ProbeResult, features: Features) -> Tensor:
    """Returns the probabilities (M, C), (M, L) or (M, A, C) float32 of a probe, on the CPU.

    Raises TypeError for features that are no tensor, and ValueError if they have another shape than those
    that the probe was trained on.
    """
    weight, bias = result.weight, result.bias
    _check_tensor(features)
    if features.shape[-1] != weight.shape[-1]:
        raise ValueError(f"features of {features.shape[-1]} columns for a probe of {weight.shape[-1]}")
    if isinstance(features, Tensor) and features.ndim == 2:
        weight_OD, bias_O = weight.flatten(0, -2), bias.flatten()
        chunks = torch.split(features, max(1, NUMBERS_AT_ONCE // max(weight_OD.shape)))
        parts_O = [functional.linear(x.to(bias.device).float(), weight_OD, bias_O).cpu() for x in chunks]
        logits = torch.cat(parts_O).reshape(-1, *bias.shape)
    else:
        weight_LD, bias_L = weight.to(features.device), bias.to(features.device)
        row_parts = parts(torch.arange(features.shape[0]), features)
        logits = torch.cat(
            [torch.einsum("mld,ld->ml", features[rows], weight_LD) + bias_L for rows in row_parts]
        )
        logits = logits.cpu()
    return logits.sigmoid() if result.task == "multi_label" else logits.softmax(-1)


def _check_tensor(features: object) -> None:
    """Raises TypeError for features that are neither a tensor nor `LabelVectors`."""
    if not isinstance(getattr(features, "device", None), torch.device):
        raise TypeError(f"features (n, D) must be a tensor; found: {type(features).__name__}")


def _check_rows(train: ProbeRows, val_features: Features, task: Task, n_classes: int) -> None:
    """Raises ValueError for features, targets and classes that do not fit, TypeError for other types."""
    check_task(task)
    for x in (train.features, val_features):
        _check_tensor(x)
    shapes = tuple(train.features.shape), tuple(val_features.shape)
    if len(shapes[0]) not in (2, 3) or shapes[0][1:] != shapes[1][1:]:
        raise ValueError(
            f"features must be (n, D) or (n, L, D), of one D; found: {shapes[0]} and {shapes[1]}"
        )
    rows = int(train.sum(torch.tensor(float(shapes[0][0]), dtype=torch.float64)))
    if rows != len(train.targets):
        raise ValueError(f"{rows} rows of features for {len(train.targets)} of targets")
    if task == "multi_label":
        wrong, excess = (width := as_rows(train.targets).width) != n_classes, f"{width} labels"
    else:
        largest = int(as_classes(train.targets).max(initial=-1))
        wrong, excess = largest >= n_classes, f"class {largest}"
    if wrong:
        raise ValueError(f"{excess} among the targets of {n_classes} classes")


def _train_layers(
    train: ProbeRows, task: Task, n_classes: int, grid: ProbeGrid, score: Callable[[ProbeResult], float]
) -> Iterator[tuple[ProbeResult, bool]]:
    """Yields the layer of each configuration, without metrics, and whether it was trained to its end."""
    known_N = torch.from_numpy(np.flatnonzero(known_rows(task, train.targets)))
    if not len(known_N):
        raise ValueError("no training row has a target")
    y = as_rows(train.targets) if task == "multi_label" else torch.from_numpy(as_classes(train.targets))
    shape = (n_classes,) if isinstance(y, LabelRows) or y.ndim == 1 else (y.shape[1], n_classes)

    def layer(weight_OD: Tensor, bias_O: Tensor, lr: float = 0, decay: float = 0) -> ProbeResult:
        weight, bias = weight_OD.reshape(*shape, -1), bias_O.reshape(shape)
        return ProbeResult(weight, bias, lr, decay, {}, np.empty(0), task)

    training = GridTraining(
        train, y, known_N, grid, math.prod(shape), lambda *tensors: score(layer(*tensors))
    )
    for pair, weight_OD, bias_O, ended in zip(grid.pairs(), *training.layers(), strict=True):
        yield layer(weight_OD, bias_O, *pair), ended


def _score(
    layer: ProbeResult, features: Features, targets: Targets, scoring: Scoring, facts: LabelFacts
) -> float:
    """Returns the metric of a layer, or its negative where less is better; NaN for a layer that diverged."""
    probabilities = predict(layer, features)
    if not torch.isfinite(probabilities).all():
        return math.nan
    metrics = scoring.evaluate(layer.task, probabilities, targets, [scoring.metric], facts)
    return scoring.sign * metrics.get(scoring.metric, math.nan)
