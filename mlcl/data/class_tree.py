"""The classes of a label space as the tree that batches are drawn by."""

from __future__ import annotations

import numpy as np
from torch import Tensor

from mlcl.data.modifications import label_sets
from mlcl.data.split import Split
from mlcl.samplers.epochs import Groups, tree


def class_tree(split: Split, labels: str) -> tuple[Groups, ...]:
    """Returns the tree of a label space, see `tree`; a space without levels gives a tree of one level.

    A row with several labels has a path for each of its finest ones; in an aspects space each pair of aspect
    and rating is a label. Rows without a label form one more class.
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
