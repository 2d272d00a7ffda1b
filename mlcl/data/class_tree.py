"""The classes of a label space as a tree with the rows below it, which samplers draw from.

Shapes: N rows, E paths, H levels.
"""

from __future__ import annotations

import numpy as np
from torch import Tensor

from mlcl.data.groups import Groups, Indices
from mlcl.data.split import Split
from mlcl.data.subset import label_sets


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
