"""The classes of a label space as a tree with the rows below it, and draws of several members of a group.

Shapes: N rows, E paths or entries, H levels, G groups, V visits.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from mlcl.data.split import Split
from mlcl.data.subset import label_sets

Indices = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Groups:
    """Group g (of G) has the members `members[offsets[g]:offsets[g + 1]]`; both are int64."""

    offsets: Indices
    members: Indices

    @classmethod
    def of(cls, group_E: Indices, member_E: Indices, groups: int) -> Groups:
        """From pairs of a group (0 to `groups` - 1) and a member, in any order."""
        sizes = np.bincount(group_E, minlength=groups)
        return cls(_starts(sizes), member_E[np.argsort(group_E, kind="stable")])

    @property
    def sizes(self) -> Indices:
        """Members of each group (G,)."""
        return np.diff(self.offsets)

    def draw(self, visited_V: Indices, count: int, rng: np.random.Generator) -> Indices:
        """`count` members (V, count) of each visited group, no member twice in a visit.

        A group with fewer gives what it has; -1 stands for the others, and for a visited group of -1. A
        group is shuffled, visited until it has no `count` members left, and shuffled again: no member comes
        up twice before that.
        """
        given_V = visited_V >= 0
        visited = visited_V[given_V]
        sizes = self.sizes
        takes = np.minimum(sizes, count)
        visits_a_round = sizes // np.maximum(takes, 1)
        visits = np.bincount(visited, minlength=len(sizes))
        rounds = -(-visits // np.maximum(visits_a_round, 1))
        shuffled, starts = self._shuffled(rounds, rng)
        round_V, visit_V = np.divmod(_repeats(visited, visits), visits_a_round[visited])
        first_V = starts[visited] + round_V * sizes[visited] + visit_V * takes[visited]
        slot = np.arange(count)
        there = slot < takes[visited, None]
        drawn = np.full((len(visited_V), count), -1, dtype=np.int64)
        drawn[given_V] = np.where(there, shuffled[np.where(there, first_V[:, None] + slot, 0)], -1)
        return drawn

    def _shuffled(self, rounds_G: Indices, rng: np.random.Generator) -> tuple[Indices, Indices]:
        """Each group so many times, every time in another order; and where each group begins (G,)."""
        sizes = self.sizes
        lengths = rounds_G * sizes
        starts = _starts(lengths)[:-1]
        group_E = np.repeat(np.arange(len(sizes)), lengths)
        round_E, place_E = np.divmod(np.arange(len(group_E)) - starts[group_E], sizes[group_E])
        key_E = _starts(rounds_G)[group_E] + round_E + rng.random(len(group_E))
        return self.members[self.offsets[group_E] + place_E][np.argsort(key_E)], starts


def _starts(lengths: Indices) -> Indices:
    return np.concatenate([[0], np.cumsum(lengths)])


def _repeats(values_V: Indices, counts: Indices) -> Indices:
    """How often each value came up before (V,); `counts` says how often each value comes up."""
    before_V = np.empty(len(values_V), dtype=np.int64)
    order = np.argsort(values_V, kind="stable")
    before_V[order] = np.arange(len(values_V)) - np.repeat(_starts(counts)[:-1], counts)
    return before_V


def class_tree(split: Split, labels: str) -> tuple[Groups, ...]:
    """The tree of a label space: of a hierarchy its levels, of any other one level.

    A row of several labels has a path for each of its finest ones; aspects are a label for each aspect's
    rating. Rows without a label are one more class.
    """
    space = split.info.space(labels)
    path_NH = split.labels(labels)
    if space.kind == "hierarchy" and isinstance(path_NH, Tensor):
        return tree(path_NH.numpy(), np.arange(len(split)))
    rows, _ = label_sets(split, labels)
    bare = np.flatnonzero(rows.counts().numpy() == 0)
    levels_E = [np.concatenate([rows.columns.numpy(), np.full(len(bare), -1)])]
    for parents in reversed(space.parents):
        levels_E.insert(0, np.asarray([*parents, -1])[levels_E[0]])
    return tree(np.stack(levels_E, axis=1), np.concatenate([rows.row_index().numpy(), bare]))


def tree(path_EH: Indices, row_E: Indices) -> tuple[Groups, ...]:
    """The tree of the classes of E paths, coarse level first, as H + 1 groupings.

    The first has one group, the classes of the coarsest level; then the finer classes of each class, level
    by level; the last has the rows of each finest class. A row may be on several paths. Classes without a
    row are left out, and -1 is a class like the others.
    """
    groupings, above_E = [], np.zeros(len(path_EH), dtype=np.int64)
    width = int(path_EH.max(initial=0)) + 2
    nodes = 1
    for class_E in path_EH.T:
        known, here_E = np.unique(above_E * width + class_E + 1, return_inverse=True)
        groupings.append(Groups.of(known // width, np.arange(len(known)), nodes))
        above_E, nodes = here_E, len(known)
    return (*groupings, Groups.of(above_E, row_E, nodes))
