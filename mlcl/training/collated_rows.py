"""Rows of texts or images that a caller's collate function reads anew for each batch.

Shapes: B rows of a batch.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from mlcl.data.images import load_upright, read_images
from mlcl.errors import UserError


@dataclass(frozen=True, eq=False)
class CollatedRows:
    """Rows of a split, or in memory, of which a collate function gets the texts or the images of a batch.

    `refuse` creates the error for an image that cannot be decoded, from its row and the reason; it is None
    for texts.
    """

    collate: Callable[[list[Any]], Mapping[str, Tensor]]
    contents: Sequence[Any]
    refuse: Callable[[int, str], UserError] | None

    def __len__(self) -> int:
        return len(self.contents)

    def batch(self, indices: Tensor) -> dict[str, Tensor]:
        """Returns the tensors (B, ...) by name of the rows at `indices`.

        Raises UserError for an image that cannot be decoded, and for wrong tensors.
        """
        rows, refuse = indices.tolist(), self.refuse
        contents = [self.contents[row] for row in rows]
        if refuse is not None:
            contents = list(
                read_images(contents, load_upright, lambda place, found: refuse(rows[place], found))
            )
        return dict(self.collate(contents))
