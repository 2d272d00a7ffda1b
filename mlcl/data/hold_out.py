"""Classes that leave training and validation, so that an encoder can be tested on classes it has not seen.

Shapes: N rows, C classes.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from mlcl.data.class_parents import class_parents
from mlcl.data.dataset import Dataset
from mlcl.data.format import HeldOut
from mlcl.data.split import Split
from mlcl.errors import UserError
from mlcl.labels import LabelRows

Indices = NDArray[np.int64]

KEY = "data.hold_out"
SHOTS = 5
"""Training rows that a class needs to be held out: the rows from which it is then learnt."""


def hold_out(data: Dataset, labels: str, share: float, seed: int) -> Dataset:
    """The data set without the rows of some classes of a label space, which `Dataset.unseen` gives.

    The classes are drawn from those with at least `SHOTS` training rows, `share` of them, rounded. Of a
    hierarchy they are classes of its finest level, the share is of the classes of each parent, and each
    parent keeps one at least. Rows with any of them leave all splits.
    Raises UserError for an unknown label space, for aspects, where fewer than two classes would be held out,
    and where fewer than two classes, or no rows of validation, would stay.
    """
    name = _finest(data, labels)
    train = data.split("train")
    count_C, group_C = _counts(train, name), _groups(data, labels, name)
    rng = np.random.default_rng([seed, 0x40D])
    drawn: list[int] = []
    for group in np.unique(group_C):
        members = rng.permutation(np.flatnonzero((group_C == group) & (count_C >= SHOTS)))
        most = len(members) - 1 if name != labels else len(members)
        drawn += members[: max(0, min(int(share * len(members) + 0.5), most))].tolist()
    stay = int((count_C > 0).sum()) - len(drawn)
    if len(drawn) < 2 or stay < 2:
        raise UserError(
            f"{len(drawn)} classes of {labels} would be held out and {stay} stay: two each are needed, of "
            f"{int((count_C >= SHOTS).sum())} with {SHOTS} training rows",
            key=f"{KEY}.share",
            found=share,
        )
    part = data.without(HeldOut(name, tuple(sorted(drawn))))
    for split in ("train", "validation"):
        part.split(split)
    return part


def _finest(data: Dataset, labels: str) -> str:
    """The label space itself, of a hierarchy its finest level."""
    try:
        space = data.info.space(labels)
    except UserError as error:
        raise error.but(key=f"{KEY}.labels") from None
    if space.kind == "aspects":
        allowed = [name for name, its in data.info.label_spaces.items() if its.kind != "aspects"]
        raise UserError(
            "aspects have no classes", key=f"{KEY}.labels", found=f"{labels} (aspects)", allowed=allowed
        )
    return space.levels[-1] if space.kind == "hierarchy" else labels


def _counts(train: Split, name: str) -> Indices:
    """The training rows of each class (C,)."""
    labels, classes = train.labels(name), train.info.space(name).n_classes
    column_E = labels.columns if isinstance(labels, LabelRows) else labels[labels >= 0]
    return np.bincount(column_E.numpy(), minlength=classes)


def _groups(data: Dataset, labels: str, name: str) -> Indices:
    """The parent of each class (C,) in the hierarchy `labels`, -1 unknown; of other spaces 0."""
    hierarchy = None if name == labels else data.info.label_spaces[labels]
    if hierarchy is None or len(hierarchy.levels) < 2:
        return np.zeros(data.info.space(name).n_classes, dtype=np.int64)
    if hierarchy.parents:
        return np.asarray(hierarchy.parents[-1], dtype=np.int64)
    return class_parents(data, name)[hierarchy.levels[-2]].numpy()
