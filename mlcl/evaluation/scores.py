"""All metrics of a prediction, from probabilities and targets, and all metrics of embeddings.

Shapes: N rows, C classes, L labels, A aspects, D embedding.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from torch import Tensor

from mlcl.errors import UserError
from mlcl.evaluation.decision import Decision, Mode, choose
from mlcl.evaluation.embedded_rows import EmbeddedRows
from mlcl.evaluation.metric import METRICS, EmbeddingMetric, Metric
from mlcl.evaluation.predictions import ClassPrediction, LabelPrediction
from mlcl.evaluation.tasks import (
    NO_FACTS,
    Array,
    LabelFacts,
    Targets,
    Task,
    array,
    as_classes,
    as_rows,
    known_entries,
)
from mlcl.labels import LabelRows

AT_HALF = Decision.fixed(0.5)


@dataclass(frozen=True)
class Scoring:
    """The metric that chooses on validation, and how predictions are made for it.

    Args:
        metric: A name of `metric_names`.
        mode: Whether more (`max`) or less (`min`) is better.
        threshold: How several labels are predicted, see `choose`.
        aspects: The names of the aspects, if there are any.
        at_least_one: Whether the most probable label of every row is predicted besides.
    """

    metric: str
    mode: Literal["max", "min"]
    threshold: Mode = 0.5
    aspects: Sequence[str] | None = None
    at_least_one: bool = False

    def better(self, value: float, than: float) -> bool:
        """Whether one value of the metric beats another."""
        return value > than if self.mode == "max" else value < than

    def decide(
        self, task: Task, probabilities: Tensor, targets: Targets, only: Collection[str] | None = None
    ) -> Decision:
        """Chooses the decision on these rows, which are those of validation.

        The threshold is one half where nothing depends on it: for other tasks, and for `only` metrics that
        rank.
        """
        needed = only is None or any(name in METRICS and METRICS[name].thresholded for name in only)
        if task != "multi_label" or not needed:
            return AT_HALF
        return choose(probabilities, targets, self.threshold, self.metric, at_least_one=self.at_least_one)

    def evaluate(
        self,
        task: Task,
        probabilities: Tensor,
        targets: Targets,
        only: Collection[str] | None = None,
        facts: LabelFacts = NO_FACTS,
    ) -> dict[str, float]:
        """`evaluate` with the decision that is chosen on the same rows."""
        decision = self.decide(task, probabilities, targets, only)
        return evaluate(task, probabilities, targets, decision, self.aspects, only, facts)


def metrics_of(task: Task, n_labels: int | None = None, groups: Collection[str] | None = ()) -> list[Metric]:
    """The metrics of a task's predictions without a group, and those of `groups`; None for all groups.

    With `n_labels`, metrics that look deeper than there are labels are left out.
    """
    found = [
        metric
        for metric in METRICS.values()
        if task in metric.tasks and not isinstance(metric, EmbeddingMetric)
        if groups is None or not metric.group or metric.group in groups
    ]
    if task == "multi_label" and n_labels is not None:
        found = [metric for metric in found if metric.depth <= n_labels]
    return sorted(found, key=lambda metric: (metric.depth, metric.name))


def metric_names(
    task: Task,
    aspects: Sequence[str] | None = None,
    n_labels: int | None = None,
    groups: Collection[str] | None = (),
) -> tuple[str, ...]:
    """Names of `metrics_of`, including those of each aspect, to check a job's choice before it starts.

    Args:
        task: The kind of task.
        aspects: The names of the aspects, if there are any.
        n_labels: The number of labels; metrics that look deeper are left out.
        groups: Groups of metrics besides those without a group; None for all.

    Example:
        >>> metric_names("aspects", ["Taste"])
        ('accuracy', 'macro_f1', 'accuracy_taste')
    """
    found = metrics_of(task, n_labels, groups)
    names = [metric.name for metric in found]
    if task == "aspects":
        names += [
            aspect_metric(metric.name, aspect)
            for metric in found
            if metric.per_aspect
            for aspect in aspects or ()
        ]
    return tuple(names)


def aspect_metric(name: str, aspect: str) -> str:
    """The name of an aspect's metric: `accuracy_` and the aspect in lower case, other signs as `_`."""
    return f"{name}_" + re.sub(r"[^a-z0-9]+", "_", aspect.lower()).strip("_")


def metric_of(name: str, task: Task, aspects: Sequence[str] | None, count: int) -> tuple[Metric, int | None]:
    """The metric with a name of `metric_names`, and the number of its aspect if it is an aspect's own.

    `count` is the number of aspects. Raises LookupError for an unknown name.
    """
    if task == "aspects":
        for number, aspect in enumerate(_aspects(aspects, count)):
            for metric in metrics_of(task):
                if metric.per_aspect and name == aspect_metric(metric.name, aspect):
                    return metric, number
    return METRICS[name], None


def evaluate(
    task: Task,
    probabilities: Tensor,
    targets: Targets,
    decision: Decision = AT_HALF,
    aspects: Sequence[str] | None = None,
    only: Collection[str] | None = None,
    facts: LabelFacts = NO_FACTS,
) -> dict[str, float]:
    """Computes the metrics of a prediction.

    `mlcl metrics` lists the metrics and what they are. Metrics such as `map` are NaN where nothing can be
    scored.

    Args:
        task: The kind of task.
        probabilities: (N, C), (N, L) or (N, A, C), float.
        targets: Classes (N,), label rows, or classes (N, A). -1 is left out, as are unknown entries of label
            rows.
        decision: Which labels are predicted. Of equally probable classes the lower one is.
        aspects: The names of the A aspects; by default their numbers.
        only: The names of the metrics to compute; by default all without a group.
        facts: Facts about labels and rows, which some metrics need.

    Returns:
        The values by name, in the order of `metric_names`.

    Raises:
        ValueError: For probabilities that are not finite, shapes that disagree, targets or needed facts that
            are all missing.
        UserError: For an unknown name in `only`.

    Example:
        >>> p = torch.tensor([[0.9, 0.1], [0.2, 0.8], [0.6, 0.4], [0.3, 0.7]])
        >>> evaluate("single", p, torch.tensor([0, 1, 1, 1]), only=["accuracy"])
        {'accuracy': 0.75}
    """
    p = array(probabilities)
    if len(p) != len(targets) or not len(p):
        raise ValueError(f"{len(p)} rows of probabilities for {len(targets)} of targets")
    if not np.isfinite(p).all():
        raise ValueError("probabilities are not finite")
    if task == "aspects":
        aspects = _aspects(aspects, p.shape[1])
    names = metric_names(task, aspects, p.shape[1], groups=() if only is None else None)
    unknown = [name for name in only or () if name not in names]
    if unknown:
        raise UserError("no such metric for this task", found=unknown, allowed=names)
    names = tuple(name for name in names if only is None or name in only)
    if task == "multi_label":
        return _of_labels(p, as_rows(targets), decision, names, facts)
    if task == "single":
        return _of_classes(p, as_classes(targets), names, facts)
    return _of_aspects(p, as_classes(targets), aspects or (), names, facts)


def embedding_metrics(groups: Collection[str]) -> list[EmbeddingMetric]:
    """The metrics of embeddings in these groups."""
    return [each for each in METRICS.values() if isinstance(each, EmbeddingMetric) and each.group in groups]


def evaluate_embeddings(embeddings: Tensor, labels: LabelRows, groups: Collection[str]) -> dict[str, float]:
    """Computes the metrics of embeddings in some groups.

    Args:
        embeddings: (N, D) float32.
        labels: The label sets of the N rows; rows without a label are left out.
        groups: Groups of metrics.

    Returns:
        The values by name. With unknown entries, metrics that are not `masked` are NaN.

    Raises:
        ValueError: For embeddings that are not finite.

    Example:
        >>> rows = LabelRows.from_lists([[0], [0], [1], [1]], 2)
        >>> x = torch.tensor([[0.0, 0.0], [0.0, 0.1], [9.0, 9.0], [9.0, 9.1]])
        >>> evaluate_embeddings(x, rows, ["clustering"])
        {'ari': 1.0, 'nmi': 1.0}
    """
    rows = EmbeddedRows.of(embeddings, labels)
    whole = rows.labels.known() is None
    return {
        metric.name: metric.of_rows(rows) if whole or metric.masked else float("nan")
        for metric in embedding_metrics(groups)
    }


def _of_labels(
    p_NL: Array, targets: LabelRows, decision: Decision, names: Sequence[str], facts: LabelFacts
) -> dict[str, float]:
    if p_NL.shape[1] != targets.width:
        raise ValueError(f"{p_NL.shape[1]} columns of probabilities for {targets.width} labels")
    wanted = [METRICS[name] for name in names]
    depth = max((metric.depth for metric in wanted), default=1)
    row_P, label_P = array(targets.row_index()), array(targets.columns)
    predicted_NL, known_NL = decision.predict(p_NL), known_entries(targets)
    if known_NL is not None:
        if not known_NL.any():
            raise ValueError("no row has a target")
        predicted_NL &= known_NL
    prediction = LabelPrediction(p_NL, predicted_NL, row_P, label_P, depth, facts, known_NL)
    return {metric.name: metric.of_labels(prediction) for metric in wanted}


def _of_classes(p_NC: Array, target_N: Array, names: Sequence[str], facts: LabelFacts) -> dict[str, float]:
    known_N = target_N >= 0
    if not known_N.any():
        raise ValueError("no row has a target")
    prediction = ClassPrediction(p_NC[known_N], target_N[known_N], facts.of_rows(known_N))
    return {name: METRICS[name].of_classes(prediction) for name in names}


def _of_aspects(
    p_NAC: Array, target_NA: Array, aspects: Sequence[str], names: Sequence[str], facts: LabelFacts
) -> dict[str, float]:
    """The means over the aspects that have a target, and the aspects' own values."""
    found = {name: metric_of(name, "aspects", aspects, len(aspects)) for name in names}
    needed = dict.fromkeys(metric.name for metric, _ in found.values())
    scored = {
        a: _of_classes(p_NAC[:, a], target_NA[:, a], list(needed), facts.of_aspect(a))
        for a in range(len(aspects))
        if (target_NA[:, a] >= 0).any()
    }
    if not scored:
        raise ValueError("no row has a target")
    values: dict[str, float] = {}
    for name, (metric, aspect) in found.items():
        if aspect is None:
            values[name] = float(np.mean([score[metric.name] for score in scored.values()]))
        elif aspect in scored:
            values[name] = scored[aspect][metric.name]
    return values


def _aspects(names: Sequence[str] | None, count: int) -> Sequence[str]:
    if names is None:
        return [str(number) for number in range(count)]
    if len(names) != count:
        raise ValueError(f"{len(names)} names for {count} aspects")
    return names
