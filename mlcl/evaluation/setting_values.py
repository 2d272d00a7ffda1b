"""A metric at every (k, lambda, temperature) of the neighbours, each kind of metric in its own way.

Shapes: M queries, K values of k, G lambdas, S splits: the rows that choose, and others if they are given.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from mlcl.evaluation.argmax_sweep import argmax_sweep
from mlcl.evaluation.knn import ballot, blend, knn_probabilities
from mlcl.evaluation.label_facts import NO_FACTS, LabelFacts
from mlcl.evaluation.label_sweeps import Levels, quantised_sweep, threshold_sweep
from mlcl.evaluation.metric import METRICS, Metric
from mlcl.evaluation.retrieval import Neighbours
from mlcl.evaluation.scores import AT_HALF, Scoring, evaluate, metric_of
from mlcl.evaluation.tasks import Array, Targets, Task, array, as_classes, as_rows, known_rows
from mlcl.evaluation.vote_cells import Grid
from mlcl.labels import LabelRows


@dataclass(frozen=True)
class Setting:
    """Neighbours, their share of the prediction, and the temperature of their weights."""

    k: int
    lambda_: float
    temperature: float


@dataclass(frozen=True)
class QueryRows:
    """M queries: their nearest neighbours, targets and facts, and the model's probabilities."""

    neighbours: Neighbours
    targets: Targets
    model: Tensor
    facts: LabelFacts = NO_FACTS

    def known(self, task: Task) -> QueryRows:
        """Those that have a target, on the CPU."""
        known_M = known_rows(task, self.targets)
        rows, targets = torch.from_numpy(np.flatnonzero(known_M)), self.targets
        return QueryRows(
            Neighbours(self.neighbours.distance.cpu()[rows], self.neighbours.index.cpu()[rows]),
            targets.take(rows) if isinstance(targets, LabelRows) else targets.cpu()[rows],
            self.model.float().cpu()[rows],
            self.facts.of_rows(known_M),
        )


@dataclass(frozen=True)
class Question:
    """What is asked of every setting: the metric of some rows; the first choose, the labels' decision too."""

    splits: Sequence[QueryRows]
    train_labels: Targets
    task: Task
    scoring: Scoring

    def known(self) -> Question:
        """The same of the rows that have a target."""
        question = replace(self, splits=[rows.known(self.task) for rows in self.splits])
        # One evaluation raises for a wrong name of a metric and for shapes that do not fit.
        for rows in question.splits:
            metric, aspects = self.scoring.metric, self.scoring.aspects
            evaluate(self.task, rows.model, rows.targets, AT_HALF, aspects, [metric], rows.facts)
        return question

    @property
    def is_rounded(self) -> bool:
        """Whether `values` are those of rounded probabilities, and of one threshold whatever is chosen."""
        given = isinstance(self.scoring.threshold, float) and not self.scoring.at_least_one
        return self.task == "multi_label" and METRICS[self.scoring.metric].counts is not None and not given

    def blended(self, rows: QueryRows, setting: Setting) -> Tensor:
        """The rows' probabilities under a setting."""
        return blend(self._votes(rows, setting.k, setting.temperature), rows.model, setting.lambda_)

    def values(self, grid: Grid) -> Iterator[Array]:
        """The metric (S, G) for every temperature and then every k."""
        first = self.splits[0]
        metric, aspect = metric_of(self.scoring.metric, self.task, self.scoring.aspects, first.model.shape[1])
        if self.task == "multi_label" and metric.counts is not None:
            return self._of_counts(metric, grid)
        if self.task != "multi_label" and metric.hits is not None:
            sweeps = [self._of_hits(rows, metric, aspect, grid) for rows in self.splits]
            return (np.stack(values) for values in zip(*sweeps, strict=True))
        return self._of_each(grid)

    def _votes(self, rows: QueryRows, k: int, temperature: float) -> Tensor:
        n_classes = rows.model.shape[-1]
        return knn_probabilities(rows.neighbours, self.train_labels, self.task, k, temperature, n_classes)

    def _of_counts(self, metric: Metric, grid: Grid) -> Iterator[Array]:
        threshold, of_counts = self.scoring.threshold, metric.counts
        assert of_counts is not None
        cells = []
        for rows in self.splits:
            targets = as_rows(rows.targets)
            votes = ballot(rows.neighbours, self.train_labels, self.task, max(grid.ks), targets.width)
            cells.append((votes, targets, array(rows.model), grid))
        if isinstance(threshold, float):
            exact = [threshold_sweep(*each, threshold, metric.pooled) for each in cells]
            for counts in zip(*exact, strict=True):
                yield np.stack([of_counts(each) for each in counts])
            return
        levels = Levels.of(array(self.splits[0].model), as_rows(self.splits[0].targets), metric)
        rounded = [quantised_sweep(*each, metric, levels) for each in cells]
        for values in zip(*rounded, strict=True):
            # The first rows choose the threshold of each lambda.
            signed_GJ = values[0] if metric.mode == "max" else -values[0]
            at_G1 = signed_GJ.argmax(1)[:, None]
            yield np.stack([np.take_along_axis(value_GJ, at_G1, 1)[:, 0] for value_GJ in values])

    def _of_hits(self, rows: QueryRows, metric: Metric, aspect: int | None, grid: Grid) -> Iterator[Array]:
        of_hits, n_classes = metric.hits, rows.model.shape[-1]
        assert of_hits is not None
        target_MA = as_classes(rows.targets).reshape(len(rows.targets), -1)
        known_A = (target_MA >= 0).sum(0)
        scored = np.flatnonzero(known_A) if aspect is None else np.array([aspect])
        votes = ballot(rows.neighbours, self.train_labels, self.task, max(grid.ks), n_classes)
        model_RC = array(rows.model).reshape(-1, n_classes)
        aspect_R = np.tile(np.arange(len(known_A)), len(target_MA))
        sweep = argmax_sweep(votes, target_MA.reshape(-1), model_RC, aspect_R, grid)
        return (np.mean(of_hits(right_GA[:, scored], known_A[scored]), axis=1) for right_GA in sweep)

    def _of_each(self, grid: Grid) -> Iterator[Array]:
        """Setting by setting."""
        for temperature, k in itertools.product(grid.temperatures, grid.ks):
            votes = [self._votes(rows, k, temperature) for rows in self.splits]
            values = [self._of_votes(votes, float(lambda_)) for lambda_ in grid.lambda_G]
            yield np.array(values).T

    def _of_votes(self, votes: Sequence[Tensor], lambda_: float) -> list[float]:
        name, aspects = self.scoring.metric, self.scoring.aspects
        mixed = [blend(vote, rows.model, lambda_) for vote, rows in zip(votes, self.splits, strict=True)]
        decision = self.scoring.decide(self.task, mixed[0], self.splits[0].targets, [name])
        return [
            evaluate(self.task, each, rows.targets, decision, aspects, [name], rows.facts)[name]
            for each, rows in zip(mixed, self.splits, strict=True)
        ]
