"""Groups of rows: of one class, from which batches are drawn, and of rows that are not independent samples.

Shapes: N rows, H levels, E pairs of a row and a finest class of it.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from mlcl.data.modifications import label_sets
from mlcl.data.split import Split
from mlcl.data.split_assignment import digest_of, twin_form
from mlcl.labels import LabelRows
from mlcl.samplers.epochs import Groups, tree


def row_groups(split: Split) -> NDArray[np.int64]:
    """Returns the group of each row (N,), numbered from 0 in the order in which the groups occur.

    Groups are those that the data set stores; else the classes that its source declares as groups; else rows
    of equal content: texts that are equal but for numbers and words such as left and right, equal encoded
    images, or equal vectors.
    """
    group_index: dict[Hashable, int] = {}
    return np.array(
        [group_index.setdefault(key, len(group_index)) for key in _group_keys(split)], dtype=np.int64
    )


def content_keys(split: Split) -> Iterable[Hashable]:
    """Returns a key for each row; rows of equal content have equal keys, see `row_groups`."""
    if split.info.modality == "text":
        return map(twin_form, split.texts())
    if split.info.modality == "image":
        return map(digest_of, split.images())
    return (vector.tobytes() for vector in split.vectors())


def _group_keys(split: Split) -> Iterable[Hashable]:
    if split.info.grouped:
        return split.groups()
    # Imported here: a plugin that declares a source may itself import this module.
    from mlcl.data.sources import SOURCES

    source = SOURCES.get(split.info.name)
    if source is None or source.groups is None or source.origin != split.info.source:
        return content_keys(split)
    labels = split.labels(source.groups)
    assert not isinstance(labels, LabelRows)
    return labels.tolist()


def class_tree(split: Split, labels: str) -> tuple[Groups, ...]:
    """Returns the tree of a label space, see `tree`; a space without levels gives a tree of one level.

    A row with several labels has a path for each of its finest labels; in an aspects space each pair of
    aspect and rating is a label. Rows without a label (at the finest level) form one more class.
    """
    space = split.info.space(labels)
    path_NH = split.labels(labels)
    if space.kind == "hierarchy" and isinstance(path_NH, Tensor):
        return tree(path_NH.numpy(), np.arange(len(split)))
    rows = label_sets(split, labels)
    unlabelled_rows = np.flatnonzero(rows.counts().numpy() == 0)
    levels_E = [np.concatenate([rows.columns.numpy(), np.full(len(unlabelled_rows), -1)])]
    for parents in reversed(space.parents):
        levels_E.insert(0, np.asarray([*parents, -1])[levels_E[0]])
    return tree(np.stack(levels_E, axis=1), np.concatenate([rows.row_index().numpy(), unlabelled_rows]))
