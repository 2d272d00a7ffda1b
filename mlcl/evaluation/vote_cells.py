"""The cells of a prediction that a setting can change, and the neighbours' votes for many settings.

Shapes: R vote rows, K neighbours, C columns, E cells, V votes, G lambdas, S steps.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from mlcl.evaluation.knn import Ballot, share, vote_weights
from mlcl.evaluation.tasks import Array, array
from mlcl.labels import LabelRows


@dataclass(frozen=True)
class Grid:
    """Values of k, of lambda (G,) float64 and of the temperature, each ascending and without repeats."""

    ks: list[int]
    lambda_G: Array
    temperatures: list[float]

    def totals(self, group_S: Array, at_S: Array, weight_S: Array, n_groups: int) -> Array:
        """The sum (G, groups) int64 of a group's weights that have come in at each lambda.

        A step has the weight `weight_S` from the lambda with the index `at_S` on; G is never.
        """
        key_S = group_S * (len(self.lambda_G) + 1) + at_S
        steps = np.bincount(key_S, weight_S, n_groups * (len(self.lambda_G) + 1)).astype(np.int64)
        return np.ascontiguousarray(steps.reshape(n_groups, -1)[:, :-1].cumsum(axis=1).T)


@dataclass(frozen=True)
class VoteCells:
    """Cells (row, column) of an R x C prediction, ordered by row and then column.

    `row` and `column` (E,) int64; `at` maps row * C + column to the cell, -1 where there is none. `steps` has
    one (cell, row * K + rank) pair of index arrays for each k: the votes that it adds to those of the k
    before.
    """

    votes: Ballot
    ks: tuple[int, ...]
    row: Array
    column: Array
    at: Array
    steps: list[tuple[Array, Array]]

    def true(self, targets: LabelRows) -> Array:
        """Which cells (E,) are labels of their rows."""
        true_E = np.zeros(len(self.row), dtype=bool)
        cell = self.at[array(targets.row_index()) * targets.width + array(targets.columns)]
        true_E[cell[cell >= 0]] = True
        return true_E

    def shares(self, temperature: float) -> Iterator[Array]:
        """The neighbours' probabilities (E,) float64, for one k after the other.

        Sums run over the neighbours in order: they equal those of `knn_probabilities` to the last bit.
        """
        weight_RK = vote_weights(self.votes.distance, self.votes.known, temperature)
        total_RK = np.cumsum(weight_RK, axis=1)
        sum_E = np.zeros(len(self.row))
        for k, (cell, source) in zip(self.ks, self.steps, strict=True):
            np.add.at(sum_E, cell, weight_RK.reshape(-1)[source])
            total_E = total_RK[:, k - 1][self.row]
            yield share(sum_E, total_E, self.votes.shape[-1]).astype(np.float64)


def make_vote_cells(votes: Ballot, ks: Sequence[int], keep_RC: Array) -> VoteCells:
    """The cells that are voted for, and those of the mask `keep_RC`; `ks` ascend and none exceeds K."""
    n_columns = keep_RC.shape[1]
    key_V = votes.row * n_columns + votes.column
    used = keep_RC.reshape(-1).copy()
    used[key_V] = True
    cells = np.flatnonzero(used)
    at = np.full(len(used), -1)
    at[cells] = np.arange(len(cells))
    source_V = votes.row * votes.distance.shape[1] + votes.rank
    steps = []
    for before, k in zip((0, *ks), ks, strict=False):
        step_V = (votes.rank >= before) & (votes.rank < k)
        steps.append((at[key_V[step_V]], source_V[step_V]))
    row, column = np.divmod(cells, n_columns)
    return VoteCells(votes, tuple(ks), row, column, at, steps)
