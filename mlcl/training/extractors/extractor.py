"""What an extractor is, and what a kind of them declares.

Shapes: N rows, F columns.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray

Matrix = Any
"""Rows (N, F) float32: a NumPy array, or a `scipy.sparse.csr_array` with sorted int32 indices."""
Contents = Any
"""A list of texts, images (N, 3, H, W) uint8, or vectors (N, F) float32."""


class Extractor(Protocol):
    """A fitted extractor, which no training changes."""

    @property
    def columns(self) -> int:
        """F, the numbers of a row."""
        ...

    def __call__(self, contents: Contents) -> Matrix:
        """The rows (N, F) of contents. A row does not depend on the others, up to rounding."""
        ...

    def save(self, folder: Path) -> None:
        """Writes what `Kind.load` needs, without pickles, into a folder that is there."""
        ...


@dataclass(frozen=True)
class Kind:
    """One kind of extractor: a value at the end of a module of this folder.

    `fit(section, contents, device)` makes the extractor of a section of `mlcl.models.feature_inputs`;
    `contents` are those of the training rows, which it reads only with `learns`, and is None otherwise.
    `load(section, folder, device)` makes it from what `save` wrote. `state(section)` gives plain data on all
    that decides its outputs beside the section and the rows; it raises UserError for a missing file.
    Rows of an extractor that is not `cached` are made each time.
    """

    fit: Callable[[Any, Contents | None, torch.device], Extractor]
    load: Callable[[Any, Path, torch.device], Extractor]
    state: Callable[[Any], object]
    learns: bool = False
    cached: bool = True


def floats(values: Any) -> NDArray[np.float32]:
    """Values as a contiguous float32 array."""
    return np.ascontiguousarray(values, dtype=np.float32)
