"""Every (k, lambda, temperature) of the neighbours, scored from one retrieval.

Shapes: M queries, K values of k, G lambdas, T temperatures.
"""

from __future__ import annotations

import itertools
import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from mlcl.evaluation.argmax_sweep import argmax_sweep
from mlcl.evaluation.knn import ballot, blend, knn_probabilities
from mlcl.evaluation.neighbour_merge import Neighbours
from mlcl.evaluation.predictions import Counts
from mlcl.evaluation.scores import Scoring, metric_of
from mlcl.evaluation.tasks import Array, Targets, Task, array, as_classes, as_rows, known_rows
from mlcl.evaluation.threshold_sweep import threshold_sweep
from mlcl.evaluation.vote_cells import Grid
from mlcl.labels import LabelRows

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Setting:
    """Neighbours, their share of the prediction, and the temperature of their weights."""

    k: int
    lambda_: float
    temperature: float


@dataclass(frozen=True)
class PosthocResult:
    """The best setting, all metrics at it, and the searched metric at every setting.

    `table` is a structured array, ordered by its fields `k`, `lambda`, `temperature`; the last is the metric.
    """

    best: Setting
    metrics: dict[str, float]
    table: Array


@dataclass(frozen=True)
class _Question:
    """What is asked of every setting."""

    neighbours: Neighbours
    train_labels: Targets
    targets: Targets
    model: Tensor
    task: Task
    scoring: Scoring

    def known(self) -> _Question:
        """The same of the rows that have a target, on the CPU."""
        rows, targets = torch.from_numpy(np.flatnonzero(known_rows(self.task, self.targets))), self.targets
        question = replace(
            self,
            neighbours=Neighbours(self.neighbours.distance.cpu()[rows], self.neighbours.index.cpu()[rows]),
            targets=targets.take(rows) if isinstance(targets, LabelRows) else targets.cpu()[rows],
            model=self.model.float().cpu()[rows],
        )
        # One evaluation raises for a wrong name of a metric and for shapes that do not fit.
        self.scoring.evaluate(self.task, question.model, question.targets, [self.scoring.metric])
        return question

    def metrics(self, votes: Tensor, lambda_: float, only: Sequence[str] | None) -> dict[str, float]:
        mixed = blend(votes, self.model, lambda_)
        return self.scoring.evaluate(self.task, mixed, self.targets, only)

    def votes(self, k: int, temperature: float) -> Tensor:
        return knn_probabilities(
            self.neighbours, self.train_labels, self.task, k, temperature, self.model.shape[-1]
        )


def search(
    neighbours: Neighbours,
    train_labels: Targets,
    targets: Targets,
    model_probabilities: Tensor,
    *,
    task: Task,
    ks: Sequence[int],
    lambdas: Sequence[float],
    temperatures: Sequence[float],
    scoring: Scoring,
) -> PosthocResult:
    """The best of all settings for one metric, and all of them.

    Each value equals `evaluate` of `blend` of `knn_probabilities` at that setting. Metrics of `counts` or
    `hits` (F1s, Hamming loss, accuracies) take one pass for each k and temperature, whatever the number of
    lambdas; other metrics are evaluated setting by setting. Of equal settings the one with the
    smallest k, then lambda, then temperature is best. A k beyond the neighbours at hand becomes their number,
    which is logged.

    Raises ValueError for an empty or invalid grid and where no setting has a value, and UserError for a
    metric that the task does not have.
    """
    grid = _grid(neighbours, ks, lambdas, temperatures)
    question = _Question(neighbours, train_labels, targets, model_probabilities, task, scoring).known()
    value_TKG = np.array(list(_values(question, grid)))
    value_KGT = value_TKG.reshape(len(grid.temperatures), len(grid.ks), len(grid.lambda_G)).transpose(1, 2, 0)
    signed = np.where(np.isnan(value_KGT), -np.inf, value_KGT if scoring.mode == "max" else -value_KGT)
    if not np.isfinite(signed).any():
        raise ValueError(f"{scoring.metric} has no value at any setting")
    best = np.unravel_index(signed.argmax(), signed.shape)
    setting = Setting(grid.ks[best[0]], float(grid.lambda_G[best[1]]), float(grid.temperatures[best[2]]))
    metrics = question.metrics(question.votes(setting.k, setting.temperature), setting.lambda_, None)
    return PosthocResult(setting, metrics, _table(grid, scoring.metric, value_KGT))


def _grid(
    neighbours: Neighbours, ks: Sequence[int], lambdas: Sequence[float], temperatures: Sequence[float]
) -> Grid:
    largest = neighbours.index.shape[1]
    kept = sorted({min(k, largest) for k in ks})
    if max(ks, default=0) > largest:
        logger.warning("k up to %d instead of %d: there are no more neighbours", largest, max(ks))
    lambda_G = np.unique(np.asarray(lambdas, dtype=np.float64))
    if not kept or not len(lambda_G) or kept[0] < 1 or lambda_G[0] < 0 or lambda_G[-1] > 1:
        raise ValueError(f"the grid needs k of at least 1 and lambda from 0 to 1: {ks}, {lambdas}")
    return Grid(kept, lambda_G, sorted(set(temperatures)))


def _values(question: _Question, grid: Grid) -> Iterator[Array]:
    """The metric (G,) for every temperature and then every k."""
    name, aspects = question.scoring.metric, question.scoring.aspects
    metric, aspect = metric_of(name, question.task, aspects, question.model.shape[1])
    threshold = question.scoring.threshold
    if question.task == "multi_label" and metric.counts is not None and isinstance(threshold, float):
        return _count_values(question, metric.counts, metric.pooled, threshold, grid)
    if question.task != "multi_label" and metric.hits is not None:
        return _hit_values(question, metric.hits, aspect, grid)
    return _plain_values(question, grid)


def _count_values(
    question: _Question, of_counts: Callable[[Counts], Array], pooled: bool, threshold: float, grid: Grid
) -> Iterator[Array]:
    targets, model_ML = as_rows(question.targets), array(question.model)
    votes = ballot(question.neighbours, question.train_labels, question.task, max(grid.ks), targets.width)
    sweep = threshold_sweep(votes, targets, model_ML, grid, threshold, pooled)
    return (of_counts(counts) for counts in sweep)


def _hit_values(
    question: _Question, of_hits: Callable[[Array, Array], Array], aspect: int | None, grid: Grid
) -> Iterator[Array]:
    n_classes = question.model.shape[-1]
    target_MA = as_classes(question.targets).reshape(len(question.targets), -1)
    known_A = (target_MA >= 0).sum(0)
    scored = np.flatnonzero(known_A) if aspect is None else np.array([aspect])
    votes = ballot(question.neighbours, question.train_labels, question.task, max(grid.ks), n_classes)
    model_RC = array(question.model).reshape(-1, n_classes)
    aspect_R = np.tile(np.arange(len(known_A)), len(target_MA))
    sweep = argmax_sweep(votes, target_MA.reshape(-1), model_RC, aspect_R, grid)
    return (np.mean(of_hits(right_GA[:, scored], known_A[scored]), axis=1) for right_GA in sweep)


def _plain_values(question: _Question, grid: Grid) -> Iterator[Array]:
    metric = question.scoring.metric
    for temperature, k in itertools.product(grid.temperatures, grid.ks):
        votes = question.votes(k, temperature)
        scores = [question.metrics(votes, float(value), [metric]) for value in grid.lambda_G]
        yield np.array([score[metric] for score in scores])


def _table(grid: Grid, metric: str, value_KGT: Array) -> Array:
    fields = [("k", np.int64), ("lambda", np.float64), ("temperature", np.float64), (metric, np.float64)]
    table = np.empty(value_KGT.size, dtype=fields)
    axes = np.meshgrid(grid.ks, grid.lambda_G, grid.temperatures, indexing="ij")
    for (name, _), column in zip(fields, [*axes, value_KGT], strict=True):
        table[name] = column.reshape(-1)
    return table
