"""Predictions of a split against its labels: metrics under the names that a run logs.

Shapes: N rows, C classes of the classifier.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from torch import Tensor

from mlcl.config.space import HALF_SUFFIX
from mlcl.data import Split, rating_classes
from mlcl.evaluation import (
    AT_HALF,
    METRICS,
    NO_FACTS,
    Decision,
    LabelFacts,
    Task,
    evaluate,
    evaluate_embeddings,
    metric_names,
)
from mlcl.evaluation.tasks import array, as_label_sets
from mlcl.training.classifier import Labels
from mlcl.training.hierarchy import row_paths


@dataclass(frozen=True)
class SplitMetrics:
    """The metrics of a classifier's label space, with the parents (C,) of its classes by coarser level.

    Beside those without a group, the metrics of `groups`, some of which read the `facts` of the labels.
    """

    task: Task
    labels: str
    aspects: Sequence[str]
    parents: Mapping[str, Tensor]
    groups: Sequence[str] = ()
    facts: LabelFacts = NO_FACTS

    def __call__(
        self,
        prefix: str,
        probabilities: Tensor,
        split: Split,
        decision: Decision,
        overlap: float = math.nan,
    ) -> dict[str, float]:
        """`<prefix>/<metric>` of all rows, with the `overlap` of their neighbours where there is one.

        Beside what depends on a decision that was chosen stands `<prefix>/<metric>_at_half`.
        """
        targets = targets_of(split, self.labels, self.task)
        names = metric_names(self.task, self.aspects, probabilities.shape[1], self.groups)
        facts = facts_of(self.facts, split, self.labels)
        values = evaluate(self.task, probabilities, targets, decision, self.aspects, names, facts)
        if decision.mode != "fixed":
            read = [name for name in values if METRICS[name].thresholded]
            half = evaluate(self.task, probabilities, targets, AT_HALF, only=read, facts=facts)
            values |= {f"{name}{HALF_SUFFIX}": value for name, value in half.items()}
        values |= coarse_accuracy(probabilities, split, self.parents)
        if not math.isnan(overlap):
            values["neighbour_overlap"] = overlap
        return {f"{prefix}/{name}": value for name, value in values.items()}

    def of_embeddings(self, prefix: str, embeddings: Tensor, split: Split) -> dict[str, float]:
        """`<prefix>/<metric>` of the metrics of `groups` that read the embeddings (N, D) of all rows."""
        if not self.groups or not embeddings.shape[1]:
            return {}
        sets = as_label_sets(
            targets_of(split, self.labels, self.task), split.info.space(self.labels).n_classes
        )
        values = evaluate_embeddings(embeddings, sets, self.groups)
        return {f"{prefix}/{name}": value for name, value in values.items()}


def decision_figures(prefix: str, decision: Decision) -> dict[str, float]:
    """`<prefix>threshold` or `<prefix>top_k`, where validation chose one number."""
    if decision.mode == "global":
        return {f"{prefix}threshold": decision.thresholds[0]}
    return {} if decision.k is None else {f"{prefix}top_k": decision.k}


def facts_of(facts: LabelFacts, split: Split, labels: str) -> LabelFacts:
    """The facts of a classifier's label space with those of a split's rows."""
    path_NH = None if facts.path is None else row_paths(split, labels)
    return facts if path_NH is None else replace(facts, row_path=array(path_NH))


def targets_of(split: Split, name: str, task: Task) -> Labels:
    """A classifier's targets in a label space; aspects as classes (N, A), -1 missing."""
    labels = split.labels(name)
    if task == "aspects":
        assert isinstance(labels, Tensor)
        return rating_classes(labels, split.info.space(name).scale)
    return labels


def coarse_accuracy(
    probabilities_NC: Tensor, split: Split, parents: Mapping[str, Tensor]
) -> dict[str, float]:
    """`accuracy_<level>`: how often the predicted class's parent is the row's own class, where it has one."""
    predicted_N = probabilities_NC.argmax(1)
    metrics: dict[str, float] = {}
    for level, parent_C in parents.items():
        target_N = split.labels(level)
        assert isinstance(target_N, Tensor)
        known_N = target_N >= 0
        if known_N.any():
            hit_N = parent_C[predicted_N[known_N]] == target_N[known_N]
            metrics[f"accuracy_{level}"] = float(hit_N.double().mean())
    return metrics
