"""Groups of rows that are not independent samples: the rows of one patient, copies, twins.

Shapes: N rows.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable

import numpy as np
from numpy.typing import NDArray

from mlcl.data.split import Split
from mlcl.data.split_assignment import digest_of, twin_form
from mlcl.labels import LabelRows


def row_groups(split: Split) -> NDArray[np.int64]:
    """Returns the group of each row (N,), numbered from 0 in the order in which the groups occur.

    Groups are those that the data set stores; else the classes that its source declares as groups; else rows
    of equal content: texts that are equal but for numbers and words such as left and right, equal encoded
    images, or equal vectors.
    """
    number: dict[Hashable, int] = {}
    return np.array([number.setdefault(key, len(number)) for key in _keys(split)], dtype=np.int64)


def content_keys(split: Split) -> Iterable[Hashable]:
    """Returns a key for each row; rows of equal content have equal keys, see `row_groups`."""
    if split.info.modality == "text":
        return map(twin_form, split.texts())
    if split.info.modality == "image":
        return map(digest_of, split.images())
    return (vector.tobytes() for vector in split.vectors())


def _keys(split: Split) -> Iterable[Hashable]:
    if split.info.grouped:
        return split.groups()
    space = _declared(split)
    if space is not None:
        labels = split.labels(space)
        assert not isinstance(labels, LabelRows)
        return labels.tolist()
    return content_keys(split)


def _declared(split: Split) -> str | None:
    """Returns the label space that the data set's source declares as groups; None if there is none."""
    # Later than the module: a source may be declared in a plugin that reads data sets.
    from mlcl.data.sources import SOURCES

    if split.info.name not in SOURCES:
        return None
    source = SOURCES[split.info.name]
    return source.groups if source.origin == split.info.source else None
