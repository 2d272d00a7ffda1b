"""Whether rows of several labels have the parents of their labels at each level of a hierarchy.

Shapes: N rows, L labels, E stored entries.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from mlcl.data.columns import parent_rows
from mlcl.data.dataset import Dataset
from mlcl.data.split import Split
from mlcl.errors import UserError
from mlcl.labels import LabelRows


def check_class_trees(data: Dataset, splits: Iterable[str]) -> list[str]:
    """A line for each level at which paths of some rows end. Ends are allowed: below, the row is not known.

    Raises UserError for the first row that lacks the parent of one of its labels.
    """
    ending: dict[tuple[str, str], int] = {}
    for split in map(data.split, splits):
        for space in data.info.label_spaces.values():
            for (coarse, fine), parents in zip(pairwise(space.levels), space.parents, strict=False):
                rows = _ending_rows(split, coarse, fine, parents)
                ending[coarse, fine] = ending.get((coarse, fine), 0) + rows
    return [
        f"{coarse}: {rows} rows have a class of it without one of {fine} below"
        for (coarse, fine), rows in ending.items()
        if rows
    ]


def _ending_rows(split: Split, coarse: str, fine: str, parents: Sequence[int]) -> int:
    """Rows with a label of the coarse level that none of their fine labels is below."""
    fine_rows, coarse_rows = split.labels(fine), split.labels(coarse)
    assert isinstance(fine_rows, LabelRows)
    assert isinstance(coarse_rows, LabelRows)
    wanted_E = _keys(parent_rows(fine_rows, parents, coarse_rows.width))
    found_E = _keys(coarse_rows)
    missing_E = np.setdiff1d(wanted_E, found_E)
    if len(missing_E):
        row, parent = divmod(int(missing_E[0]), coarse_rows.width)
        own = split.info.space(fine).classes
        without = next(label for label in fine_rows.lists()[row] if parents[label] == parent)
        file, place = split.place(row)
        raise UserError(
            f"label without its parent at row {place}, id {split.ids[row]}",
            file=file,
            key=fine,
            found=own[without],
            allowed=f"with {split.info.space(coarse).classes[parent]} in {coarse}",
        )
    return len(np.unique(np.setdiff1d(found_E, wanted_E) // coarse_rows.width))


def _keys(rows: LabelRows) -> NDArray[np.int64]:
    """A number for each row and label."""
    keys: NDArray[np.int64] = (rows.row_index() * rows.width + rows.columns).numpy()
    return keys
