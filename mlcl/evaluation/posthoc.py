"""Every (k, lambda, temperature) of the neighbours, scored from one retrieval.

Shapes: M queries, K values of k, G lambdas, T temperatures.
"""

from __future__ import annotations

import itertools
import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from mlcl.evaluation.argmax_sweep import argmax_sweep
from mlcl.evaluation.knn import ballot, blend, knn_probabilities
from mlcl.evaluation.metric import Metric
from mlcl.evaluation.neighbour_merge import Neighbours
from mlcl.evaluation.scores import evaluate, metric_of
from mlcl.evaluation.tasks import Array, Targets, Task, array, as_classes, as_rows, known_rows
from mlcl.evaluation.threshold_sweep import threshold_sweep
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
    """What is asked of every setting; rows without a target are gone."""

    neighbours: Neighbours
    train_labels: Targets
    targets: Targets
    model: Tensor
    task: Task
    metric: str
    threshold: float
    aspects: Sequence[str] | None

    def metrics(self, votes: Tensor, lambda_: float, only: Sequence[str] | None) -> dict[str, float]:
        mixed = blend(votes, self.model, lambda_)
        return evaluate(self.task, mixed, self.targets, self.threshold, self.aspects, only)

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
    metric: str,
    mode: Literal["max", "min"],
    threshold: float = 0.5,
    aspects: Sequence[str] | None = None,
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
    ks, lambda_G = _grid(neighbours, ks, lambdas)
    temperatures = sorted(set(temperatures))
    question = _question(
        neighbours, train_labels, targets, model_probabilities, task, metric, threshold, aspects
    )
    value_TKG = np.array(list(_values(question, ks, lambda_G, temperatures)))
    value_KGT = value_TKG.reshape(len(temperatures), len(ks), len(lambda_G)).transpose(1, 2, 0)
    signed = np.where(np.isnan(value_KGT), -np.inf, value_KGT if mode == "max" else -value_KGT)
    if not np.isfinite(signed).any():
        raise ValueError(f"{metric} has no value at any setting")
    best = np.unravel_index(signed.argmax(), signed.shape)
    setting = Setting(ks[best[0]], float(lambda_G[best[1]]), float(temperatures[best[2]]))
    metrics = question.metrics(question.votes(setting.k, setting.temperature), setting.lambda_, None)
    return PosthocResult(setting, metrics, _table(ks, lambda_G, temperatures, metric, value_KGT))


def _grid(neighbours: Neighbours, ks: Sequence[int], lambdas: Sequence[float]) -> tuple[list[int], Array]:
    largest = neighbours.index.shape[1]
    kept = sorted({min(k, largest) for k in ks})
    if max(ks, default=0) > largest:
        logger.warning("k up to %d instead of %d: there are no more neighbours", largest, max(ks))
    lambda_G = np.unique(np.asarray(lambdas, dtype=np.float64))
    if not kept or not len(lambda_G) or kept[0] < 1 or lambda_G[0] < 0 or lambda_G[-1] > 1:
        raise ValueError(f"the grid needs k of at least 1 and lambda from 0 to 1: {ks}, {lambdas}")
    return kept, lambda_G


def _question(
    neighbours: Neighbours,
    train_labels: Targets,
    targets: Targets,
    model: Tensor,
    task: Task,
    metric: str,
    threshold: float,
    aspects: Sequence[str] | None,
) -> _Question:
    rows = torch.from_numpy(np.flatnonzero(known_rows(task, targets)))
    neighbours = Neighbours(neighbours.distance.cpu()[rows], neighbours.index.cpu()[rows])
    targets = targets.take(rows) if isinstance(targets, LabelRows) else targets.cpu()[rows]
    question = _Question(
        neighbours, train_labels, targets, model.float().cpu()[rows], task, metric, threshold, aspects
    )
    # One evaluation raises for a wrong name of a metric and for shapes that do not fit.
    evaluate(task, question.model, targets, threshold, aspects, [metric])
    return question


def _values(
    question: _Question, ks: Sequence[int], lambda_G: Array, temperatures: Sequence[float]
) -> Iterator[Array]:
    """The metric (G,) for every temperature and then every k."""
    metric, aspect = metric_of(question.metric, question.task, question.aspects, question.model.shape[1])
    if question.task == "multi_label" and metric.counts is not None:
        return _count_values(question, metric, ks, lambda_G, temperatures)
    if question.task != "multi_label" and metric.hits is not None:
        return _hit_values(question, metric, aspect, ks, lambda_G, temperatures)
    return _plain_values(question, ks, lambda_G, temperatures)


def _count_values(
    question: _Question, metric: Metric, ks: Sequence[int], lambda_G: Array, temperatures: Sequence[float]
) -> Iterator[Array]:
    of_counts = metric.counts
    assert of_counts is not None
    targets, model_ML = as_rows(question.targets), array(question.model)
    votes = ballot(question.neighbours, question.train_labels, question.task, max(ks), targets.width)
    sweep = threshold_sweep(
        votes, targets, model_ML, ks, lambda_G, temperatures, question.threshold, metric.pooled
    )
    return (of_counts(counts) for counts in sweep)


def _hit_values(
    question: _Question,
    metric: Metric,
    aspect: int | None,
    ks: Sequence[int],
    lambda_G: Array,
    temperatures: Sequence[float],
) -> Iterator[Array]:
    of_hits = metric.hits
    assert of_hits is not None
    n_classes = question.model.shape[-1]
    target_MA = as_classes(question.targets).reshape(len(question.targets), -1)
    known_A = (target_MA >= 0).sum(0)
    scored = np.flatnonzero(known_A) if aspect is None else np.array([aspect])
    votes = ballot(question.neighbours, question.train_labels, question.task, max(ks), n_classes)
    sweep = argmax_sweep(
        votes,
        target_MA.reshape(-1),
        array(question.model).reshape(-1, n_classes),
        np.tile(np.arange(len(known_A)), len(target_MA)),
        ks,
        lambda_G,
        temperatures,
    )
    return (np.mean(of_hits(right_GA[:, scored], known_A[scored]), axis=1) for right_GA in sweep)


def _plain_values(
    question: _Question, ks: Sequence[int], lambda_G: Array, temperatures: Sequence[float]
) -> Iterator[Array]:
    for temperature, k in itertools.product(temperatures, ks):
        votes = question.votes(k, temperature)
        scores = [question.metrics(votes, float(value), [question.metric]) for value in lambda_G]
        yield np.array([score[question.metric] for score in scores])


def _table(
    ks: Sequence[int], lambda_G: Array, temperatures: Sequence[float], metric: str, value_KGT: Array
) -> Array:
    fields = [("k", np.int64), ("lambda", np.float64), ("temperature", np.float64), (metric, np.float64)]
    table = np.empty(value_KGT.size, dtype=fields)
    axes = np.meshgrid(ks, lambda_G, temperatures, indexing="ij")
    for (name, _), column in zip(fields, [*axes, value_KGT], strict=True):
        table[name] = column.reshape(-1)
    return table
