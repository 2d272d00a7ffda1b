"""Combines the probabilities of two models of the same rows by a weighted mean of their logits.

Shapes: N rows, C classes, L labels, A aspects.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from mlcl.evaluation.scores import Scoring
from mlcl.evaluation.tasks import NO_FACTS, LabelFacts, Targets, Task

WEIGHTS = tuple(step / 10 for step in range(11))
SMALLEST = 1e-7
"""The least probability whose logit is computed: smaller probabilities are raised to it, and those of labels
are also lowered to at most 1 - SMALLEST. float32 numbers just below 1 are 6e-8 apart."""


@dataclass(frozen=True)
class Ensemble:
    """The weighted mean of the logits z_1 of a first model and the rescaled logits z_2 of a second model.

        z = (1 - w) z_1 + w (scale z_2 + shift)

    For labels z_1 and z_2 are log-odds and the probability is the sigmoid of z. For classes, also of each
    aspect, they are logarithms of probabilities, minus each row's mean over the classes, and the
    probabilities are the softmax of z.

    Attributes:
        weight: The weight w of the second model; 0 is the first model alone.
        scale: The factor of the second model's logits.
        shift: The number added to the second model's scaled logits; 0 for classes, where it has no effect.
    """

    weight: float
    scale: float = 1.0
    shift: float = 0.0

    def __call__(self, task: Task, first: Tensor, second: Tensor) -> Tensor:
        """Returns probabilities, float32, in the shape of the inputs: (N, L), (N, C) or (N, A, C).

        With weight 0 it returns `first` itself.
        """
        if not self.weight:
            return first
        second_logits = self.scale * _logits(task, second) + self.shift
        z = torch.lerp(_logits(task, first), second_logits, self.weight)
        return (z.sigmoid() if task == "multi_label" else z.softmax(-1)).float()


def choose_ensemble(
    task: Task,
    first: Tensor,
    second: Tensor,
    targets: Targets,
    scoring: Scoring,
    facts: LabelFacts = NO_FACTS,
) -> Ensemble:
    """Chooses the weight in `WEIGHTS` with the best metric on these rows, which are validation rows.

    The second model's logits are scaled to the standard deviation, and for labels to the mean, of the first
    model's logits, so that a weight of one half gives both the same influence. Among equally good weights the
    smallest wins, so the second model has a weight only if it improves the metric. If all logits of the
    second model are equal, the weight is 0.

    Args:
        task: The kind of task.
        first: Probabilities of the first model, float, (N, L), (N, C) or (N, A, C).
        second: Probabilities of the second model, of the same shape.
        targets: The targets, as `evaluate` takes them.
        scoring: The metric, and how labels are predicted.
        facts: Frequency bands and a hierarchy of the labels, which some metrics read.

    Raises:
        ValueError: The shapes of the two models' probabilities differ.

    Example:
        >>> wrong, right = torch.tensor([[0.9, 0.1]]), torch.tensor([[0.2, 0.8]])
        >>> choose_ensemble("single", wrong, right, torch.tensor([1]), Scoring("accuracy", "max")).weight
        0.6
    """
    if first.shape != second.shape:
        raise ValueError(f"probabilities {tuple(first.shape)} and {tuple(second.shape)}")
    z_1, z_2 = _logits(task, first), _logits(task, second)
    deviation = float(z_2.std(correction=0))
    if not deviation:
        return Ensemble(0.0)
    scale = (float(z_1.std(correction=0)) or 1.0) / deviation
    shift = float(z_1.mean() - scale * z_2.mean()) if task == "multi_label" else 0.0
    best, best_value = Ensemble(0.0), math.nan
    for weight in WEIGHTS:
        ensemble = Ensemble(weight, scale, shift)
        probabilities = ensemble(task, first, second)
        values = scoring.evaluate(task, probabilities, targets, [scoring.metric], facts)
        value = values.get(scoring.metric, math.nan)
        if not math.isnan(value) and (math.isnan(best_value) or scoring.better(value, best_value)):
            best, best_value = ensemble, value
    return best


def _logits(task: Task, probabilities: Tensor) -> Tensor:
    p = probabilities.double()
    if task == "multi_label":
        return p.logit(eps=SMALLEST)
    z: Tensor = p.clamp_min(SMALLEST).log()
    return z - z.mean(-1, keepdim=True)
