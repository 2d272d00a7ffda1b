"""Computes a metric at every setting (k, lambda, temperature) of a k-NN prediction, from one retrieval.

Shapes: M queries, S splits, K values of k, G lambdas, T temperatures, A aspects.
"""

from __future__ import annotations

import itertools
import logging
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from mlcl.evaluation.decision import Decision
from mlcl.evaluation.knn import Ballot, ballot, blend, knn_probabilities
from mlcl.evaluation.knn_sweeps import Grid, Levels, sweep_counts, sweep_hits, sweep_thresholds
from mlcl.evaluation.metric import METRICS, Metric
from mlcl.evaluation.retrieval import Neighbours
from mlcl.evaluation.scores import AT_HALF, Scoring, evaluate, metric_of
from mlcl.evaluation.tasks import (
    NO_FACTS,
    Array,
    LabelFacts,
    Targets,
    Task,
    array,
    as_classes,
    as_rows,
    known_rows,
)
from mlcl.labels import LabelRows

logger = logging.getLogger(__name__)

FINALISTS = 3


@dataclass(frozen=True)
class Setting:
    """The number k of neighbours, the weight lambda of their votes in the prediction, and the temperature."""

    k: int
    lambda_: float
    temperature: float


@dataclass(frozen=True)
class QueryRows:
    """M queries: their nearest neighbours, their targets, and the model's probabilities.

    `model` has the probabilities of classes (M, C), of labels (M, L), or of each aspect's classes (M, A, C).
    `facts` has frequency bands of labels and paths in a hierarchy, which some metrics read.
    """

    neighbours: Neighbours
    targets: Targets
    model: Tensor
    facts: LabelFacts = NO_FACTS

    def with_target(self, task: Task) -> QueryRows:
        """Returns the queries that have a known target, on the CPU."""
        known_M = known_rows(task, self.targets)
        rows, targets = torch.from_numpy(np.flatnonzero(known_M)), self.targets
        return QueryRows(
            Neighbours(self.neighbours.distance.cpu()[rows], self.neighbours.index.cpu()[rows]),
            targets.take(rows) if isinstance(targets, LabelRows) else targets.cpu()[rows],
            self.model.float().cpu()[rows],
            self.facts.of_rows(known_M),
        )


@dataclass(frozen=True)
class PosthocResult:
    """The result of `search`.

    Attributes:
        best: The best setting.
        decision: The rule that says which labels are predicted at the best setting.
        metrics: All metrics at the best setting.
        table: The searched metric at every setting, a structured array sorted by its fields `k`, `lambda` and
            `temperature`; the last field is the metric.
        held_out: The metric of the held-out rows in the order of `table`, or None.
    """

    best: Setting
    decision: Decision
    metrics: dict[str, float]
    table: Array
    held_out: Array | None


def search(
    rows: QueryRows,
    train_labels: Targets,
    *,
    task: Task,
    ks: Sequence[int],
    lambdas: Sequence[float],
    temperatures: Sequence[float],
    scoring: Scoring,
    held_out: QueryRows | None = None,
) -> PosthocResult:
    """Finds the setting (k, lambda, temperature) of the neighbours with the best value of a metric.

    Each value equals `evaluate` of `blend` of `knn_probabilities` at that setting, but see below. Metrics
    with `counts` or `hits` (F1 scores, Hamming loss, accuracies) are computed from the few cells that a
    setting can change. Among equally good settings the smallest k wins, then the smallest lambda, then the
    smallest temperature.

    For labels, a metric with `counts` is approximated if validation chooses the thresholds: by one threshold
    for all labels and rounded probabilities, see `sweep_thresholds`, and without `scoring.at_least_one`.
    Exact values then decide between the `FINALISTS` best pairs of k and temperature, each
    with its best lambda, and the model alone (lambda 0, if in the grid). With `per_label` the pairs are first
    compared with one threshold for all labels, and only the best one with the model alone.

    Args:
        rows: The validation rows as queries.
        train_labels: The labels of the datastore.
        task: The kind of task.
        ks: Numbers of neighbours; a k beyond the number of retrieved neighbours is replaced by that number,
            which is logged.
        lambdas: Weights of the neighbours' votes in the blend, from 0 to 1.
        temperatures: Temperatures of the neighbours' weights.
        scoring: The metric, and how labels are predicted.
        held_out: Queries that are only scored, with the thresholds chosen on `rows`; they affect no choice.

    Raises:
        ValueError: For an empty or invalid grid, and where no setting has a value.
        UserError: For a metric that the task does not have.

    Example:
        >>> train, labels = torch.randn(20, 4), torch.arange(20) % 2
        >>> rows = QueryRows(retrieve(train, train[:5], 3), labels[:5], torch.full((5, 2), 0.5))
        >>> grid = {"ks": [1, 3], "lambdas": [0, 1], "temperatures": [1.0]}
        >>> search(rows, labels, task="single", scoring=Scoring("accuracy", "max"), **grid).best
        Setting(k=1, lambda_=1.0, temperature=1.0)
    """
    grid = _build_grid(rows.neighbours.index.shape[1], ks, lambdas, temperatures)
    splits = [queries.with_target(task) for queries in (rows, held_out) if queries is not None]
    query = _Query(splits, train_labels, task, scoring)
    for split in splits:  # refuses a wrong name of a metric, and shapes that do not fit
        query.value(split, split.model, AT_HALF)
    value_SKGT = query.values(grid)
    best = max(map(query.decide, query.candidates(grid, value_SKGT[0])), key=lambda choice: choice.value)
    targets, facts = splits[0].targets, splits[0].facts
    metrics = evaluate(task, best.probabilities, targets, best.decision, scoring.aspects, facts=facts)
    fields = [("k", np.int64), ("lambda", np.float64), ("temperature", np.float64)]
    items = zip(grid.settings, value_SKGT[0].flat, strict=True)
    table = np.array([(*key, value) for key, value in items], dtype=[*fields, (scoring.metric, np.float64)])
    held_out_values = None if held_out is None else value_SKGT[1].reshape(-1)
    return PosthocResult(best.setting, best.decision, metrics, table, held_out_values)


class _DecidedSetting(NamedTuple):
    """A setting, its blended probabilities, the rule that says which labels are predicted, and the metric.

    The metric is negated if less is better, so the largest `value` is best.
    """

    setting: Setting
    probabilities: Tensor
    decision: Decision
    value: float


@dataclass(frozen=True)
class _Query:
    """Computes the metric of `scoring` at settings; settings and thresholds are chosen on the first split."""

    splits: Sequence[QueryRows]
    train_labels: Targets
    task: Task
    scoring: Scoring

    def value(self, rows: QueryRows, probabilities: Tensor, decision: Decision) -> float:
        name, aspects = self.scoring.metric, self.scoring.aspects
        metrics = evaluate(self.task, probabilities, rows.targets, decision, aspects, [name], rows.facts)
        return metrics.get(name, math.nan)  # an aspect of a split may have no known target

    def decide(self, setting: Setting) -> _DecidedSetting:
        """Chooses which labels are predicted at a setting, and computes the metric, on the first split."""
        rows, scoring = self.splits[0], self.scoring
        probabilities = blend(self._votes(rows, setting.k, setting.temperature), rows.model, setting.lambda_)
        decision = scoring.decide(self.task, probabilities, rows.targets)
        return _DecidedSetting(
            setting, probabilities, decision, scoring.sign * self.value(rows, probabilities, decision)
        )

    def values(self, grid: Grid) -> Array:
        """Returns the metric at every setting, for every split (S, K, G, T)."""
        shape = (len(grid.temperatures), len(grid.ks), len(self.splits), len(grid.lambdas))
        return np.array(list(self._grid_values(grid))).reshape(shape).transpose(2, 1, 3, 0)

    def candidates(self, grid: Grid, value_KGT: Array) -> list[Setting]:
        """Returns the settings for which thresholds are chosen exactly, to find the best of them.

        If `value_KGT` is exact, returns its best setting. If it is an approximation (see `search`), returns
        the model alone (if the grid has lambda 0), then the `FINALISTS` best pairs of k and temperature, each
        with its best lambda, ordered by k; with `per_label` only the best of these pairs. Raises ValueError
        if no value is finite.
        """
        signed_KGT = np.where(np.isnan(value_KGT), -np.inf, self.scoring.sign * value_KGT)
        if not np.isfinite(signed_KGT).any():
            raise ValueError(f"{self.scoring.metric} has no value at any setting")
        fixed = isinstance(self.scoring.threshold, float)
        counted = self.task == "multi_label" and METRICS[self.scoring.metric].counts is not None
        if fixed or not counted:
            return [Setting(*grid.settings[signed_KGT.argmax()])]
        best_KT, value_KT = signed_KGT.argmax(axis=1), signed_KGT.max(axis=1)
        pairs = np.argsort(-value_KT, axis=None, kind="stable")[:FINALISTS]
        k, t = np.divmod(np.sort(pairs), len(grid.temperatures))
        indices = np.ravel_multi_index((k, best_KT[k, t], t), signed_KGT.shape)
        settings = [Setting(*grid.settings[index]) for index in indices]
        if self.scoring.threshold == "per_label":
            common_query = replace(self, scoring=replace(self.scoring, threshold="global"))
            settings = [max(settings, key=lambda setting: common_query.decide(setting).value)]
        model_only = [Setting(*grid.settings[0])] if grid.lambdas[0] == 0 else []
        return [*model_only, *settings]

    def _grid_values(self, grid: Grid) -> Iterator[Array]:
        """Yields the metric (S, G) of each split at each lambda, for every temperature and then every k."""
        width = self.splits[0].model.shape[1]
        metric, aspect = metric_of(self.scoring.metric, self.task, self.scoring.aspects, width)
        fixed = isinstance(self.scoring.threshold, float)
        if self.task == "multi_label" and metric.counts is not None and not fixed:
            return self._values_from_thresholds(metric, grid)
        if self.task == "multi_label" and metric.counts is not None and not self.scoring.at_least_one:
            split_values = [self._values_from_counts(rows, metric, grid) for rows in self.splits]
        elif self.task != "multi_label" and metric.hits is not None:
            split_values = [self._values_from_hits(rows, metric, aspect, grid) for rows in self.splits]
        else:
            return self._values_per_setting(grid)
        return map(np.stack, zip(*split_values, strict=True))

    def _votes(self, rows: QueryRows, k: int, temperature: float) -> Tensor:
        n_classes = rows.model.shape[-1]
        return knn_probabilities(rows.neighbours, self.train_labels, self.task, k, temperature, n_classes)

    def _ballot(self, rows: QueryRows, grid: Grid) -> Ballot:
        return ballot(rows.neighbours, self.train_labels, self.task, grid.ks[-1], rows.model.shape[-1])

    def _values_from_counts(self, rows: QueryRows, metric: Metric, grid: Grid) -> Iterator[Array]:
        assert metric.counts is not None
        limit, votes = float(np.float32(self.scoring.threshold)), self._ballot(rows, grid)
        targets, model = as_rows(rows.targets), array(rows.model)
        return map(metric.counts, sweep_counts(votes, targets, model, grid, limit, pooled=metric.pooled))

    def _values_from_thresholds(self, metric: Metric, grid: Grid) -> Iterator[Array]:
        """Yields what `_grid_values` yields; the threshold at each lambda is chosen on the first split."""
        inputs = [(as_rows(rows.targets), array(rows.model)) for rows in self.splits]
        levels = Levels(*inputs[0], metric)
        ballots = [self._ballot(rows, grid) for rows in self.splits]
        split_values = [
            sweep_thresholds(votes, *arrays, grid, metric, levels)
            for votes, arrays in zip(ballots, inputs, strict=True)
        ]
        for values in zip(*split_values, strict=True):
            best_G1 = (self.scoring.sign * values[0]).argmax(1)[:, None]
            yield np.stack([np.take_along_axis(value_GJ, best_G1, 1)[:, 0] for value_GJ in values])

    def _values_from_hits(
        self, rows: QueryRows, metric: Metric, aspect: int | None, grid: Grid
    ) -> Iterator[Array]:
        metric_of_hits, n_classes = metric.hits, rows.model.shape[-1]
        assert metric_of_hits is not None
        target_MA = as_classes(rows.targets).reshape(len(rows.targets), -1)
        known_A = (target_MA >= 0).sum(0)
        aspects = np.flatnonzero(known_A) if aspect is None else np.array([aspect])
        model_RC = array(rows.model).reshape(-1, n_classes)
        aspect_R = np.tile(np.arange(len(known_A)), len(target_MA))
        sweep = sweep_hits(self._ballot(rows, grid), target_MA.reshape(-1), model_RC, aspect_R, grid)
        return (np.mean(metric_of_hits(right_GA[:, aspects], known_A[aspects]), axis=1) for right_GA in sweep)

    def _values_per_setting(self, grid: Grid) -> Iterator[Array]:
        """Yields the metric (S, G) for every temperature and every k, with thresholds of each setting."""
        names, targets = [self.scoring.metric], self.splits[0].targets
        for temperature, k in itertools.product(grid.temperatures, grid.ks):
            votes = [self._votes(rows, k, temperature) for rows in self.splits]
            values = []
            for lambda_ in grid.lambdas:
                blends = [blend(q, rows.model, lambda_) for q, rows in zip(votes, self.splits, strict=True)]
                decision = self.scoring.decide(self.task, blends[0], targets, names)
                values.append([self.value(*pair, decision) for pair in zip(self.splits, blends, strict=True)])
            yield np.array(values).T


def _build_grid(
    largest: int, ks: Sequence[int], lambdas: Sequence[float], temperatures: Sequence[float]
) -> Grid:
    k_values, lambda_values = sorted({min(k, largest) for k in ks}), sorted(set(map(float, lambdas)))
    if max(ks, default=0) > largest:
        logger.warning("k up to %d instead of %d: there are no more neighbours", largest, max(ks))
    if not k_values or not lambda_values or k_values[0] < 1 or lambda_values[0] < 0 or lambda_values[-1] > 1:
        raise ValueError(f"the grid needs k of at least 1 and lambda from 0 to 1: {ks}, {lambdas}")
    return Grid(k_values, lambda_values, sorted(set(temperatures)))
