"""Average precision and AUC of a ranking without each block of its rows, computed from one sort.

A block is a set of rows that the jackknife leaves out together.

Shapes: N rows, L labels, n rows or cells of one ranking, P positives, B blocks.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from mlcl.evaluation.tasks import Array

CELLS = 1 << 22
"""The largest number of counts (P, blocks) that are in memory at once."""

Without = Callable[[Array, Array, Array, int], Array]
"""A function of the scores (n,), truths (n,) bool and blocks (n,) of one ranking, and of the number B.

It returns the values (B,) of the ranking without each block."""


@dataclass(frozen=True)
class LabelBlocks:
    """A multi-label prediction whose rows are grouped in blocks.

    `blocks` is the number of blocks, `block` (N,) the number of each row's block. `probabilities` are (N, L)
    float; `true` says whether each label is true (N, L), `known` whether each entry is known (N, L), None if
    all are.
    """

    probabilities: Array
    true: Array
    block: Array
    blocks: int
    known: Array | None = None

    def by_label(self, value: Without) -> Array:
        """Returns each label's `value` without each block (B, L), over the rows in which it is known."""
        columns = []
        for label in range(self.true.shape[1]):
            rows = slice(None) if self.known is None else self.known[:, label]
            p, true = self.probabilities[rows, label], self.true[rows, label]
            columns.append(value(p, true, self.block[rows], self.blocks))
        return np.stack(columns, axis=1)

    def pooled(self, value: Without) -> Array:
        """Computes `value` without each block (B,), from one ranking of all known row-label entries."""
        cells = np.ones_like(self.true) if self.known is None else self.known
        block = np.broadcast_to(self.block[:, None], self.true.shape)
        return value(self.probabilities[cells], self.true[cells], block[cells], self.blocks)


def average_precision_without(score_n: Array, true_n: Array, block_n: Array, blocks: int) -> Array:
    """Returns the average precision without each block (B,); NaN if no positive row remains.

    Equal scores share a rank, as in `rank_labels`. Let c(i) be the number of rows, and p(i) the number of
    positive rows, that score at least as high as positive i, and c_b(i) and p_b(i) the numbers of those in
    block b. The value is the mean of (p(i) - p_b(i)) / (c(i) - c_b(i)) over the positives outside of b.
    """
    order = np.argsort(-score_n)
    negated_scores, true, block = -score_n[order], true_n[order], block_n[order]
    from_P = np.searchsorted(negated_scores, negated_scores[true], side="right")
    positives_from_P = np.searchsorted(negated_scores[true], negated_scores[true], side="right")
    block_P = block[true]
    value_B = np.full(blocks, np.nan)
    step = max(1, CELLS // (len(from_P) + 1))
    for first in range(0, blocks, step):
        width = min(step, blocks - first)
        inside = (block >= first) & (block < first + width)
        place, column = np.flatnonzero(inside), block[inside] - first
        positive = true[inside]
        all_PB = from_P[:, None] - _count_per_block(place, column, from_P, width)
        positives_PB = positives_from_P[:, None] - _count_per_block(
            place[positive], column[positive], from_P, width
        )
        precision_PB = np.divide(positives_PB, all_PB, out=np.zeros(all_PB.shape), where=all_PB > 0)
        inside_P = (block_P >= first) & (block_P < first + width)
        precision_PB[np.flatnonzero(inside_P), block_P[inside_P] - first] = 0
        remaining_B = len(from_P) - np.bincount(block_P[inside_P] - first, minlength=width)
        with np.errstate(invalid="ignore"):
            value_B[first : first + width] = precision_PB.sum(0) / remaining_B
    return value_B


def _count_per_block(place: Array, column: Array, from_P: Array, width: int) -> Array:
    """Returns how many of the first `from_P` rows of a ranking are in each block (P, width).

    `place` and `column` are the rank and the block of each row; `from_P` (P,) ascends.
    """
    segment = np.searchsorted(from_P, place, side="right")
    cells = np.bincount(segment * width + column, minlength=(len(from_P) + 1) * width)
    return np.asarray(cells.reshape(-1, width)[: len(from_P)].cumsum(0))


def auc_without(score_n: Array, true_n: Array, block_n: Array, blocks: int) -> Array:
    """Returns the area under the ROC curve without each block (B,).

    It is NaN if no positive or no negative row remains. Let U(S, T) be the number of pairs of a positive in S
    and a negative in T that are in the right order, where pairs with equal scores count half. The value is
    U(all, all) - U(b, all) - U(all, b) + U(b, b), divided by the number of pairs that remain.
    """
    _, rank_n = np.unique(score_n, return_inverse=True)
    key_n = block_n * (int(rank_n.max(initial=0)) + 1) + rank_n
    block_P, block_M = block_n[true_n], block_n[~true_n]
    above_P = _count_lower(rank_n[true_n], rank_n[~true_n])
    below_M = len(block_P) - _count_lower(rank_n[~true_n], rank_n[true_n])
    earlier_P = np.searchsorted(np.sort(block_M), block_P, side="left")
    within_P = _count_lower(key_n[true_n], key_n[~true_n]) - earlier_P
    won_B = above_P.sum() - np.bincount(block_P, above_P - within_P, blocks)
    won_B -= np.bincount(block_M, below_M, blocks)
    positives_B = len(block_P) - np.bincount(block_P, minlength=blocks)
    negatives_B = len(block_M) - np.bincount(block_M, minlength=blocks)
    with np.errstate(invalid="ignore", divide="ignore"):
        pairs_B = positives_B * negatives_B
        return np.where(pairs_B > 0, won_B / pairs_B, np.nan)


def _count_lower(values: Array, other_values: Array) -> Array:
    """Returns, for each of `values`, how many of `other_values` are lower; equal values count half."""
    ordered = np.sort(other_values)
    sides = np.searchsorted(ordered, values, side="left") + np.searchsorted(ordered, values, side="right")
    return np.asarray(sides / 2)
