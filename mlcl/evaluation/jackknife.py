"""The delete-a-block jackknife: computes metrics of a prediction without each block of its rows.

A block is a union of groups of rows that belong together. The variation of the values, each without one
block, estimates the standard error that a metric has because the rows are a random sample.

Shapes: N rows, B blocks, C classes, L labels, A aspects, P true entries.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from mlcl.evaluation.decision import Decision
from mlcl.evaluation.metric import METRICS, Metric
from mlcl.evaluation.predictions import Counts
from mlcl.evaluation.rankings_without import LabelBlocks
from mlcl.evaluation.scores import AT_HALF, evaluate, metric_of
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
    known_rows,
)
from mlcl.labels import LabelRows

BLOCKS = 100
"""The largest number of blocks."""


def blocks_of_groups(group_N: Array, blocks: int = BLOCKS, seed: int = 0) -> Array:
    """Assigns the rows of each group to one of at most `blocks` blocks with about equal numbers of rows.

    `group_N` has the number of each row's group. Groups are assigned in descending order of size, each to the
    block with the fewest rows; groups of equal size are in random order, by `seed`. Returns the number of
    each row's block (N,) int64, counted from 0; no block is empty, so there are never more blocks than
    groups.

    Example:
        >>> sorted(np.bincount(blocks_of_groups(np.array([7, 7, 7, 1, 2, 3]), blocks=2)).tolist())
        [3, 3]
    """
    _, inverse_N, size_G = np.unique(group_N, return_inverse=True, return_counts=True)
    order_G = np.random.default_rng(seed).permutation(len(size_G))
    order_G = order_G[np.argsort(-size_G[order_G], kind="stable")]
    rows_B = np.zeros(min(blocks, len(size_G)), dtype=np.int64)
    block_G = np.empty(len(size_G), dtype=np.int64)
    for group in order_G:
        block_G[group] = rows_B.argmin()
        rows_B[block_G[group]] += size_G[group]
    return np.asarray(block_G[inverse_N])


def values_without_blocks(
    task: Task,
    probabilities: Tensor,
    targets: Targets,
    block_N: Array,
    decision: Decision = AT_HALF,
    aspects: Sequence[str] | None = None,
    only: Collection[str] = (),
    facts: LabelFacts = NO_FACTS,
) -> dict[str, Array]:
    """Computes metrics without each block: the values of `evaluate` for the rows of all other blocks.

    `block_N` has the number of each row's block, from 0 to B - 1, `only` the names of the metrics; the other
    arguments, and the errors raised, are those of `evaluate`. Returns the values (B,) float64, keyed by the
    metric's name. A value is NaN if the metric is NaN for these rows, or none of them has a target.

    Example:
        >>> p = torch.tensor([[0.9, 0.1], [0.2, 0.8], [0.6, 0.4], [0.3, 0.7]])
        >>> blocks = np.array([0, 0, 1, 1])
        >>> values_without_blocks("single", p, torch.tensor([0, 1, 1, 1]), blocks, only=["accuracy"])
        {'accuracy': array([0.5, 1. ])}
    """
    slow_names = [name for name in only if name not in METRICS or METRICS[name].without_blocks is None]
    evaluate(task, probabilities, targets, decision, aspects, slow_names, facts)  # raises for bad input
    rows = _BlockMetrics(task, probabilities, targets, block_N, decision, aspects, facts)
    return {name: rows.values(name) for name in only}


@dataclass(frozen=True)
class _BlockMetrics:
    """The arguments of `values_without_blocks`; `values` computes one metric without each block."""

    task: Task
    probabilities: Tensor
    targets: Targets
    block_N: Array
    decision: Decision
    aspects: Sequence[str] | None
    facts: LabelFacts

    @property
    def blocks(self) -> int:
        return int(self.block_N.max()) + 1

    def values(self, name: str) -> Array:
        """Computes a metric without each block (B,): from counts or one sort if the metric allows it."""
        metric = METRICS.get(name)
        with np.errstate(divide="ignore", invalid="ignore"):
            if self.task == "multi_label":
                assert metric is not None
                has_target_B = np.asarray(self._label_counts.cells) > 0
                if metric.counts is not None:
                    return np.where(has_target_B, metric.counts(self._label_counts), np.nan)
                label_blocks = self._label_blocks
                if metric.without_blocks is not None and (label_blocks.known is None or metric.masked):
                    return np.where(has_target_B, metric.without_blocks(label_blocks), np.nan)
            else:
                columns = self.probabilities.shape[1] if self.task == "aspects" else 1
                metric, aspect = metric_of(name, self.task, self.aspects, columns)
                if metric.hits is not None or metric.class_counts is not None:
                    return self._class_values(metric, columns, aspect)
        blocks = (np.flatnonzero(self.block_N != b) for b in range(self.blocks))
        return np.array([self._evaluate_rows(name, rows) for rows in blocks])

    def _class_values(self, metric: Metric, columns: int, aspect: int | None) -> Array:
        """Computes a class metric without each block (B,): of one aspect, or if None the columns' mean."""
        value_AB = np.stack([self._column_values(metric, column) for column in range(columns)])
        if aspect is not None:
            return np.asarray(value_AB[aspect])
        finite_AB = np.isfinite(value_AB)
        return np.asarray(np.where(finite_AB, value_AB, 0).sum(0) / finite_AB.sum(0))

    def _column_values(self, metric: Metric, column: int) -> Array:
        target_N, predicted_N = (class_NA[:, column] for class_NA in self._class_columns)
        known_N = target_N >= 0
        block, target, predicted = self.block_N[known_N], target_N[known_N], predicted_N[known_N]
        right = target == predicted
        known_B = _sum_other_blocks(np.bincount(block, minlength=self.blocks))
        if metric.hits is not None:
            right_B = _sum_other_blocks(np.bincount(block[right], minlength=self.blocks))
            return np.asarray(metric.hits(right_B, known_B), dtype=np.float64)
        assert metric.class_counts is not None
        n = self.probabilities.shape[-1]
        counts = Counts(
            right=self._count_entries(block[right], target[right], n),
            predicted=self._count_entries(block, predicted, n),
            true=self._count_entries(block, target, n),
            cells=known_B,
        )
        return np.where(known_B > 0, metric.class_counts(counts), np.nan)

    @cached_property
    def _class_columns(self) -> tuple[Array, Array]:
        """The targets and the predicted classes (N, A); A is 1 for a single classifier."""
        predicted, target = array(self.probabilities).argmax(-1), as_classes(self.targets)
        return target.reshape(len(target), -1), predicted.reshape(len(target), -1)

    def _count_entries(self, block: Array, label: Array, n_labels: int) -> Array:
        """Returns the numbers of entries of each label without each block (B, L)."""
        cells = np.bincount(block * n_labels + label, minlength=self.blocks * n_labels)
        return _sum_other_blocks(cells.reshape(self.blocks, n_labels))

    @cached_property
    def _label_counts(self) -> Counts:
        """The counts of each label without each block (B, L)."""
        p_NL, rows = array(self.probabilities), as_rows(self.targets)
        predicted_NL, known_NL = self.decision.predict(p_NL), known_entries(rows)
        known_N = np.full(len(p_NL), p_NL.shape[1]) if known_NL is None else known_NL.sum(1)
        if known_NL is not None:
            predicted_NL &= known_NL
        row_P, label_P = array(rows.row_index()), array(rows.columns)
        right_P = predicted_NL[row_P, label_P]
        block_P, (row, label) = self.block_N[row_P], np.nonzero(predicted_NL)
        return Counts(
            right=self._count_entries(block_P[right_P], label_P[right_P], rows.width),
            predicted=self._count_entries(self.block_N[row], label, rows.width),
            true=self._count_entries(block_P, label_P, rows.width),
            cells=_sum_other_blocks(np.bincount(self.block_N, known_N, self.blocks)),
        )

    @cached_property
    def _label_blocks(self) -> LabelBlocks:
        rows = as_rows(self.targets)
        true_NL = rows.dense().numpy() > 0
        return LabelBlocks(array(self.probabilities), true_NL, self.block_N, self.blocks, known_entries(rows))

    def _evaluate_rows(self, name: str, rows: Array) -> float:
        if not len(rows):
            return float("nan")
        index = torch.from_numpy(rows)
        targets = self.targets.take(index) if isinstance(self.targets, LabelRows) else self.targets[index]
        if not known_rows(self.task, targets).any():
            return float("nan")
        facts, p = self.facts.of_rows(rows), self.probabilities[index]
        metrics = evaluate(self.task, p, targets, self.decision, self.aspects, [name], facts)
        return metrics.get(name, float("nan"))


def _sum_other_blocks(value_B: Array) -> Array:
    """Returns for each block the sum of the values of all other blocks; the first axis is the block."""
    return np.asarray(value_B.sum(0) - value_B)
