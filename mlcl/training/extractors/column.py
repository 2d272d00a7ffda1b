"""The vectors that a data set itself holds, as they are."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from mlcl.models.feature_inputs import ColumnInput
from mlcl.training.extractors.extractor import Contents, Kind, floats

FILE = "column.json"


@dataclass(frozen=True)
class Column:
    """The identity on vectors (N, F) of one size."""

    columns: int

    def __call__(self, contents: NDArray[np.float32]) -> NDArray[np.float32]:
        """The vectors. Raises ValueError for another size."""
        if contents.shape[1] != self.columns:
            raise ValueError(f"vectors of {contents.shape[1]} numbers, not {self.columns}")
        return floats(contents)

    def save(self, folder: Path) -> None:
        """Writes the size."""
        (folder / FILE).write_text(json.dumps({"columns": self.columns}))


def _fit(_: ColumnInput, contents: Contents | None, __: torch.device) -> Column:
    assert contents is not None
    return Column(contents.shape[1])


def _load(_: ColumnInput, folder: Path, __: torch.device) -> Column:
    return Column(int(json.loads((folder / FILE).read_text())["columns"]))


COLUMN = Kind(_fit, _load, lambda _: None, learns=True, cached=False)
