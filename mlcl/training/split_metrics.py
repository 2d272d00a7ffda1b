"""Computes the metrics of a split's predictions under the names that a run logs, and reads label hierarchies.

Shapes: N rows, C classes of the classifier, H levels of a hierarchy from the coarsest to the classifier's.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from mlcl.config.space.search import HALF_SUFFIX
from mlcl.data import Dataset, DatasetInfo, LabelSpace, Split, class_parents, rating_classes
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
from mlcl.evaluation.tasks import array, as_label_sets, known_rows
from mlcl.training.classifier import Labels

METRIC_NAMES = {"train": "train", "validation": "val", "test": "test"}
"""The name of each split in the names of metrics."""


@dataclass(frozen=True)
class SplitMetrics:
    """Computes the metrics of a classifier's label space.

    `parents` has the parent (C,) of each class, keyed by coarser level. `groups` are the groups of metrics
    that are computed besides the metrics without a group; some of them read `facts`.
    """

    task: Task
    labels: str
    aspects: Sequence[str]
    parents: Mapping[str, Tensor]
    groups: Sequence[str] = ()
    facts: LabelFacts = NO_FACTS

    def __call__(
        self, prefix: str, probabilities: Tensor, split: Split, decision: Decision, overlap: float = math.nan
    ) -> dict[str, float]:
        """Returns all metrics of a split under the names `<prefix>/<metric>`.

        If validation chose the thresholds, metrics that depend on them are also given at threshold 0.5, as
        `<prefix>/<metric>_at_half`. `overlap`, the mean fraction of the neighbours' labels that a row shares,
        becomes the metric `neighbour_overlap` unless it is NaN. There are no metrics of a split without a
        known target.
        """
        targets = targets_of(split, self.labels, self.task)
        if not known_rows(self.task, targets).any():
            return {}
        names = metric_names(self.task, self.aspects, probabilities.shape[1], self.groups)
        facts = facts_of(self.facts, split, self.labels)
        values = evaluate(self.task, probabilities, targets, decision, self.aspects, names, facts)
        if decision.mode != "fixed":
            threshold_names = [name for name in values if METRICS[name].thresholded]
            half_values = evaluate(
                self.task, probabilities, targets, AT_HALF, only=threshold_names, facts=facts
            )
            values |= {f"{name}{HALF_SUFFIX}": value for name, value in half_values.items()}
        values |= coarse_accuracy(probabilities, split, self.parents)
        if not math.isnan(overlap):
            values["neighbour_overlap"] = overlap
        return {f"{prefix}/{name}": value for name, value in values.items()}

    def of_embeddings(self, prefix: str, embeddings: Tensor, split: Split) -> dict[str, float]:
        """Returns as `<prefix>/<metric>` the metrics in `groups` that read embeddings (N, D) of all rows."""
        if not self.groups or not embeddings.shape[1]:
            return {}
        targets = targets_of(split, self.labels, self.task)
        sets = as_label_sets(targets, split.info.space(self.labels).n_classes)
        values = evaluate_embeddings(embeddings, sets, self.groups)
        return {f"{prefix}/{name}": value for name, value in values.items()}


def decision_metrics(prefix: str, decision: Decision) -> dict[str, float]:
    """Returns `<prefix>threshold` or `<prefix>top_k` if validation chose one number, else an empty dict."""
    if decision.mode == "global":
        return {f"{prefix}threshold": decision.thresholds[0]}
    return {} if decision.k is None else {f"{prefix}top_k": decision.k}


def facts_of(facts: LabelFacts, split: Split, labels: str) -> LabelFacts:
    """Returns `facts` with `row_path`, each row's class at each level of a hierarchy, if any."""
    path_NH = None if facts.path is None else row_paths(split, labels)
    return facts if path_NH is None else replace(facts, row_path=array(path_NH))


def targets_of(split: Split, name: str, task: Task) -> Labels:
    """Returns a classifier's targets in a label space. For aspects they are classes (N, A), -1 unknown."""
    labels = split.labels(name)
    if task == "aspects":
        assert isinstance(labels, Tensor)
        return rating_classes(labels, split.info.space(name).scale)
    return labels


def coarse_accuracy(
    probabilities_NC: Tensor, split: Split, parents: Mapping[str, Tensor]
) -> dict[str, float]:
    """Returns `accuracy_<level>`: how often the predicted class's parent is the row's class at that level."""
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


def hierarchy_of(info: DatasetInfo, labels: str) -> LabelSpace | None:
    """Returns the first hierarchy that has `labels` as a level below the coarsest; None if there is none."""
    own_name = info.own_name(labels)
    return next((space for space in info.label_spaces.values() if own_name in space.levels[1:]), None)


def paths(dataset: Dataset, labels: str) -> Tensor | None:
    """Returns the ancestors of each class of `labels` and, last, the class itself (C, H), coarsest first.

    Returns None if `labels` has no coarser levels. The data set declares the parents of multi-label classes;
    the parents of single-label classes follow from the rows, see `class_parents`. A class whose parent is
    unknown gets a parent of its own.
    """
    space = hierarchy_of(dataset.info, labels)
    if space is None:
        return None
    coarser_levels = space.levels[: space.levels.index(dataset.info.own_name(labels))]
    parents = class_parents(dataset, labels)
    level_C = torch.arange(dataset.info.space(labels).n_classes)
    columns = [level_C]
    for number, level in reversed(list(enumerate(coarser_levels))):
        if space.parents:
            level_C = torch.tensor(space.parents[number])[level_C]
        else:
            own_parent_C = dataset.info.space(level).n_classes + torch.arange(len(level_C))
            level_C = torch.where(parents[level] >= 0, parents[level], own_parent_C)
        columns.insert(0, level_C)
    return torch.stack(columns, dim=1)


def row_paths(split: Split, labels: str) -> Tensor | None:
    """Returns the rows' classes (N, H) at every level down to `labels`, coarsest first, -1 if unknown.

    Returns None if `labels` has no coarser levels with one class per row.
    """
    coarser_levels = levels_above(split.info, labels)
    if not coarser_levels:
        return None
    levels = [split.labels(level) for level in (*coarser_levels, split.info.own_name(labels))]
    return torch.stack([level for level in levels if isinstance(level, Tensor)], dim=1)


def levels_above(info: DatasetInfo, labels: str) -> tuple[str, ...]:
    """Returns the levels above `labels` with one class per row, coarsest first; empty if there are none."""
    space = hierarchy_of(info, labels)
    if space is None or space.parents:
        return ()
    return space.levels[: space.levels.index(info.own_name(labels))]
