"""The linear probe: one linear layer on frozen features, a whole grid of them trained at once.

Shapes: N rows, D features, O outputs (C classes, L labels, or A * C).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from mlcl.evaluation.decision import Decision
from mlcl.evaluation.label_facts import NO_FACTS, LabelFacts
from mlcl.evaluation.probe_training import GridTraining, ProbeGrid, ProbeRows
from mlcl.evaluation.scores import AT_HALF, Scoring, evaluate
from mlcl.evaluation.tasks import Array, Targets, Task, as_classes, as_rows, known_rows
from mlcl.labels import LabelRows


@dataclass(frozen=True)
class ProbeResult:
    """The best layer on validation, its scores and decision there, and the metric of every configuration.

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
    """Trains every (lr, weight decay) from zero, AdamW and a cosine schedule; the best on validation wins.

    Features are standardised by the training rows' mean and deviation; the returned layer includes that and
    takes features as they are. All configurations see the same batches, shuffled by the grid's seed; their
    losses are added up, so each has its own gradient. Cross-entropy, or binary cross-entropy for labels. Rows
    without a target and unknown entries are left out; the bias has no weight decay. Of equal configurations
    the first wins.

    With several processes each adds the gradient of its own rows of every batch: the batches, and the layer
    but for the rounding of sums, equal one process. Every process holds all validation rows and
    returns the same result. `val_facts` are what some metrics read of the validation rows.

    Raises ValueError where no training row has a target or every configuration diverged.
    Source: Similarity-Dissimilarity, appendix D (a linear layer on the frozen encoder).
    """
    known_N = torch.from_numpy(np.flatnonzero(known_rows(task, train.targets)))
    if not len(known_N):
        raise ValueError("no training row has a target")
    y = as_rows(train.targets) if task == "multi_label" else torch.from_numpy(as_classes(train.targets))
    shape = (n_classes,) if isinstance(y, LabelRows) or y.ndim == 1 else (y.shape[1], n_classes)
    training = GridTraining(train, y, known_N, grid, math.prod(shape))
    scores, best = [], None
    for (lr, decay), weight_OD, bias_O in zip(grid.pairs(), *training.layers(), strict=True):
        layer = ProbeResult(
            weight_OD.reshape(*shape, -1), bias_O.reshape(shape), lr, decay, {}, np.empty(0), task
        )
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
    """Probabilities (N, C), (N, L) or (N, A, C) float32 of features (N, D)."""
    logits_NO = functional.linear(features.float().cpu(), result.weight.flatten(0, -2), result.bias.flatten())
    logits = logits_NO.reshape(-1, *result.bias.shape)
    return logits.sigmoid() if result.task == "multi_label" else logits.softmax(-1)


def _score(
    layer: ProbeResult, features: Tensor, targets: Targets, scoring: Scoring, facts: LabelFacts
) -> float:
    probabilities = predict(layer, features)
    if not torch.isfinite(probabilities).all():
        return math.nan
    return scoring.evaluate(layer.task, probabilities, targets, [scoring.metric], facts)[scoring.metric]
