"""Computes all metrics of a prediction from probabilities and targets, and all metrics of embeddings.

Shapes: N rows, C classes, L labels, A aspects, D embedding.
"""

from __future__ import annotations

import math
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
    check_probabilities,
    check_task,
    known_entries,
)
from mlcl.labels import LabelRows

AT_HALF = Decision.fixed(0.5)


@dataclass(frozen=True)
class Scoring:
    """The metric by which choices are made on validation, and how the predicted labels are chosen.

    Attributes:
        metric: A name that `metric_names` returns.
        mode: Whether larger (`max`) or smaller (`min`) values are better.
        threshold: How the predicted labels of multi-label tasks are chosen, see `choose`.
        aspects: The names of the aspects; None for other tasks.
        at_least_one: Whether the most probable label of every row is always predicted, too.
    """

    metric: str
    mode: Literal["max", "min"]
    threshold: Mode = 0.5
    aspects: Sequence[str] | None = None
    at_least_one: bool = False

    def __post_init__(self) -> None:
        if self.mode not in ("max", "min"):
            raise ValueError(f"scoring by {self.metric} has the mode {self.mode!r}; allowed: max, min")

    @property
    def sign(self) -> int:
        """The factor that makes larger values of the metric better: 1 for `max`, -1 for `min`."""
        return 1 if self.mode == "max" else -1

    def better(self, value: float, than: float) -> bool:
        """Whether the metric's value `value` is better than the value `than`."""
        return value > than if self.mode == "max" else value < than

    def decide(
        self, task: Task, probabilities: Tensor, targets: Targets, only: Collection[str] | None = None
    ) -> Decision:
        """Chooses the rule that says which labels are predicted, on these rows, which are validation rows.

        The threshold is one half if no metric depends on it: for tasks with classes, and if `only` names
        nothing but metrics that read the ranking of probabilities.
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
        """Computes metrics as `evaluate` does, with the thresholds that are chosen on the same rows."""
        decision = self.decide(task, probabilities, targets, only)
        return evaluate(task, probabilities, targets, decision, self.aspects, only, facts)


def metrics_of(task: Task, n_labels: int | None = None, groups: Collection[str] | None = ()) -> list[Metric]:
    """Returns the metrics of a task's predictions: metrics without a group, and the metrics in `groups`.

    If `groups` is None, metrics of all groups are returned. With `n_labels`, metrics of a multi-label task
    that need more than so many labels are left out.
    """
    metrics = [
        metric
        for metric in METRICS.values()
        if task in metric.tasks and not isinstance(metric, EmbeddingMetric)
        if groups is None or not metric.group or metric.group in groups
    ]
    if task == "multi_label" and n_labels is not None:
        metrics = [metric for metric in metrics if metric.depth <= n_labels]
    return sorted(metrics, key=lambda metric: (metric.depth, metric.name))


def metric_names(
    task: Task,
    aspects: Sequence[str] | None = None,
    n_labels: int | None = None,
    groups: Collection[str] | None = (),
) -> tuple[str, ...]:
    """Returns the names of `metrics_of` and of each aspect's own metrics, to check a job before it starts.

    Args:
        task: The kind of task.
        aspects: The names of the aspects; None for other tasks.
        n_labels: The number of labels; metrics that need more labels are left out.
        groups: Groups of metrics to add to the metrics without a group; None for all groups.

    Example:
        >>> metric_names("aspects", ["Taste"])
        ('accuracy', 'macro_f1', 'accuracy_taste')
    """
    metrics = metrics_of(task, n_labels, groups)
    per_aspect = [metric for metric in metrics if task == "aspects" and metric.per_aspect]
    aspect_names = [aspect_metric(metric.name, aspect) for metric in per_aspect for aspect in aspects or ()]
    return (*(metric.name for metric in metrics), *aspect_names)


def aspect_metric(name: str, aspect: str) -> str:
    """Returns the name of an aspect's metric, such as `accuracy_taste`, with `_` for other characters."""
    return f"{name}_" + re.sub(r"[\W_]+", "_", aspect.lower()).strip("_")


def metric_of(name: str, task: Task, aspects: Sequence[str] | None, count: int) -> tuple[Metric, int | None]:
    """Returns the metric for a name in `metric_names`, and the number of the aspect that the name ends with.

    The number is None if the name has no aspect. `count` is the number of aspects. Raises LookupError for an
    unknown name, and ValueError if `aspects` are not `count` names.
    """
    if task == "aspects":
        for number, aspect in enumerate(_aspect_names(aspects, count)):
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

    `mlcl metrics` lists and explains the metrics. Metrics such as `map` are NaN if no label or row can be
    scored.

    Args:
        task: The kind of task.
        probabilities: Probabilities (N, C), (N, L) or (N, A, C), float.
        targets: Classes (N,), label rows, or classes (N, A). Unknown classes, -1, and unknown entries of
            label rows are left out.
        decision: The rule that says which labels are predicted. For classes the most probable one is
            predicted, of equally probable ones the lower.
        aspects: The names of the A aspects; by default their numbers.
        only: The names of the metrics to compute; by default all metrics without a group.
        facts: Frequency bands and a hierarchy of the labels, which some metrics need.

    Returns:
        The values, keyed by the metric's name, in the order of `metric_names`. For an aspect without known
        targets there is no value.

    Raises:
        ValueError: Probabilities are not within 0 and 1, shapes disagree, classes are no integers, no row has
            a known target, or `facts` lacks what a metric needs.
        TypeError: Probabilities or targets are of another type, or `only` is a string.
        UserError: `only` has an unknown name.

    Example:
        >>> p = torch.tensor([[0.9, 0.1], [0.2, 0.8], [0.6, 0.4], [0.3, 0.7]])
        >>> evaluate("single", p, torch.tensor([0, 1, 1, 1]), only=["accuracy"])
        {'accuracy': 0.75}
    """
    p = array(probabilities)
    _check_shapes(task, p, targets)
    check_probabilities(p)
    if task == "aspects":
        aspects = _aspect_names(aspects, p.shape[1])
    names = metric_names(task, aspects, p.shape[1], groups=() if only is None else None)
    if isinstance(only, str):
        raise TypeError(f"only is a list of names; found: {only!r}")
    unknown_names = [name for name in only or () if name not in names]
    if unknown_names:
        raise UserError("no such metric for this task", found=unknown_names, allowed=names)
    names = tuple(name for name in names if only is None or name in only)
    if task == "multi_label":
        return _evaluate_labels(p, as_rows(targets), decision, names, facts)
    if task == "single":
        return _evaluate_classes(p, as_classes(targets), names, facts)
    return _evaluate_aspects(p, as_classes(targets), aspects or (), names, facts)


def embedding_metrics(groups: Collection[str]) -> list[EmbeddingMetric]:
    """Returns the metrics of embeddings in these groups."""
    return [
        metric
        for metric in METRICS.values()
        if isinstance(metric, EmbeddingMetric) and metric.group in groups
    ]


def evaluate_embeddings(embeddings: Tensor, labels: LabelRows, groups: Collection[str]) -> dict[str, float]:
    """Computes the metrics of embeddings in some groups.

    Args:
        embeddings: Embeddings (N, D), float32.
        labels: The label sets of the N rows; rows without a label are left out.
        groups: Groups of metrics.

    Returns:
        The values, keyed by the metric's name. If labels have unknown entries, metrics that are not `masked`
        are NaN.

    Raises:
        ValueError: Embeddings are not finite, there are not as many as label sets, or a group is unknown.
        TypeError: Embeddings are not a tensor, or `labels` not label rows.

    Example:
        >>> rows = LabelRows.from_lists([[0], [0], [1], [1]], 2)
        >>> x = torch.tensor([[0.0, 0.0], [0.0, 0.1], [9.0, 9.0], [9.0, 9.1]])
        >>> evaluate_embeddings(x, rows, ["clustering"])
        {'ari': 1.0, 'nmi': 1.0}
    """
    x, sets = array(embeddings), as_rows(labels)
    if len(x) != len(sets):
        raise ValueError(f"{len(x)} embeddings for {len(sets)} label sets")
    if not np.isfinite(x).all():
        raise ValueError("embeddings are not finite")
    if unknown := set(groups) - {metric.group for metric in METRICS.values()}:
        raise ValueError(f"unknown groups of metrics; found: {', '.join(sorted(unknown))}")
    rows = EmbeddedRows.of(embeddings, sets)
    all_known = rows.labels.known() is None
    return {
        metric.name: metric.of_rows(rows) if all_known or metric.masked else float("nan")
        for metric in embedding_metrics(groups)
    }


def _check_shapes(task: Task, p: Array, targets: Targets) -> None:
    """Raises ValueError if probabilities and targets do not fit the task and each other."""
    check_task(task)
    if len(p) != len(targets) or not len(p):
        raise ValueError(f"{len(p)} rows of probabilities for {len(targets)} of targets")
    classes = None if task == "multi_label" else as_classes(targets)
    shape = p.shape[:1] if classes is None else classes.shape
    wrong = classes is not None and p.shape[:-1] != shape
    if wrong or p.ndim != (3 if task == "aspects" else 2):
        raise ValueError(f"probabilities {p.shape} and targets {shape} do not fit the task {task}")
    if classes is not None and (largest := int(classes.max())) >= p.shape[-1]:
        raise ValueError(f"class {largest} among the targets of {p.shape[-1]} classes")


def _evaluate_labels(
    p_NL: Array, targets: LabelRows, decision: Decision, names: Sequence[str], facts: LabelFacts
) -> dict[str, float]:
    if p_NL.shape[1] != targets.width:
        raise ValueError(f"{p_NL.shape[1]} columns of probabilities for {targets.width} labels")
    metrics = [METRICS[name] for name in names]
    depth = max((metric.depth for metric in metrics), default=1)
    row_P, label_P = array(targets.row_index()), array(targets.columns)
    predicted_NL, known_NL = decision.predict(p_NL), known_entries(targets)
    if known_NL is not None:
        if not known_NL.any():
            raise ValueError("no row has a target")
        predicted_NL &= known_NL
    prediction = LabelPrediction(p_NL, predicted_NL, row_P, label_P, depth, facts, known_NL)
    return {metric.name: metric.of_labels(prediction) for metric in metrics}


def _evaluate_classes(
    p_NC: Array, target_N: Array, names: Sequence[str], facts: LabelFacts
) -> dict[str, float]:
    known_N = target_N >= 0
    if not known_N.any():
        raise ValueError("no row has a target")
    prediction = ClassPrediction(p_NC[known_N], target_N[known_N], facts.of_rows(known_N))
    return {name: METRICS[name].of_classes(prediction) for name in names}


def _evaluate_aspects(
    p_NAC: Array, target_NA: Array, aspects: Sequence[str], names: Sequence[str], facts: LabelFacts
) -> dict[str, float]:
    """Returns the metrics `names`: means over the aspects with a value, or values of single aspects."""
    by_name = {name: metric_of(name, "aspects", aspects, len(aspects)) for name in names}
    base_names = dict.fromkeys(metric.name for metric, _ in by_name.values())
    aspect_scores = {
        a: _evaluate_classes(p_NAC[:, a], target_NA[:, a], list(base_names), facts.of_aspect(a))
        for a in range(len(aspects))
        if (target_NA[:, a] >= 0).any()
    }
    if not aspect_scores:
        raise ValueError("no row has a target")
    values: dict[str, float] = {}
    for name, (metric, aspect) in by_name.items():
        if aspect is None:
            aspect_values = [
                value for score in aspect_scores.values() if math.isfinite(value := score[metric.name])
            ]
            values[name] = float(np.mean(aspect_values)) if aspect_values else math.nan
        elif aspect in aspect_scores:
            values[name] = aspect_scores[aspect][metric.name]
    return values


def _aspect_names(names: Sequence[str] | None, count: int) -> Sequence[str]:
    if names is None:
        return [str(number) for number in range(count)]
    if len(names) != count:
        raise ValueError(f"{len(names)} names for {count} aspects")
    if len({aspect_metric("", name) for name in names}) < count:
        raise ValueError(f"aspects whose metrics would have one name; found: {', '.join(names)}")
    return names
