"""The stored embeddings and probabilities of a finished run.

Shapes: N rows of a split, D embedding, P probabilities of a row.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import torch
from numpy.typing import NDArray
from torch import Tensor

from mlcl.data import LabelSpace, Split
from mlcl.data.format import SPLITS
from mlcl.errors import UserError
from mlcl.training.embeddings_file import EMBEDDINGS, read_embeddings
from mlcl.training.job_data import JobData
from mlcl.training.neighbours import Datastore
from mlcl.training.rank_rows import RankRows

COLUMNS = ("id", "split", "embedding", "probabilities")


@dataclass(frozen=True)
class StoredRun:
    """`embeddings` (N, D) by split, `probabilities` of validation and test as the task shapes them.

    Trials of a search never read the test split, and have none of its rows.
    """

    job_data: JobData
    embeddings: dict[str, Tensor]
    probabilities: dict[str, Tensor]

    @classmethod
    def read(cls, folder: Path, job_data: JobData, *, test: bool = True) -> Self:
        """Reads a run's folder, or one with its artifacts; without `test`, test rows may be missing.

        Raises UserError where there are no embeddings, or those of other rows.
        """
        table = _read(folder / EMBEDDINGS)
        left = pc.unique(table["split"]).to_pylist()
        embeddings, probabilities = {}, {}
        for name in SPLITS:
            if name not in left:
                if name == "test" and not test:
                    continue
                raise UserError(f"the run left no embeddings of {name} rows", file=folder / EMBEDDINGS)
            split = job_data.train if name == "train" else job_data.dataset.split(name)
            embeddings[name], flat_NP = _rows(table, name, split.ids, folder)
            if name != "train":
                aspects = job_data.dataset.info.space(_labels(job_data)).aspects
                shape = (len(split), len(aspects), -1) if job_data.task == "aspects" else (len(split), -1)
                probabilities[name] = flat_NP.reshape(shape)
        return cls(job_data, embeddings, probabilities)

    @property
    def tested(self) -> bool:
        """Whether the run read the test split."""
        return "test" in self.embeddings

    @property
    def space(self) -> LabelSpace:
        """The label space that the classifier predicts."""
        return self.job_data.dataset.info.space(_labels(self.job_data))

    def split(self, name: str) -> Split:
        """The rows of a split; of training, those that the run was trained on."""
        return self.job_data.train if name == "train" else self.job_data.dataset.split(name)

    def datastore(self) -> Datastore:
        """The training rows as a datastore for neighbours."""
        targets = self.job_data.targets(self.job_data.train)
        rows = RankRows(self.embeddings["train"])
        return Datastore(rows, targets, self.job_data.task, self.space.n_classes)


def _labels(job_data: JobData) -> str:
    return job_data.job.objective.classifier.labels


def _read(file: Path) -> pa.Table:
    try:
        table = read_embeddings(file)
        table.validate(full=True)
    except (OSError, pa.ArrowException) as error:
        raise UserError("the run's embeddings cannot be read", file=file, found=error) from None
    missing = [name for name in COLUMNS if name not in table.column_names]
    lists = all(_is_list(table[name].type) for name in COLUMNS[2:] if name not in missing)
    if missing or not lists:
        raise UserError("not the embeddings of a run", file=file, found=table.column_names, allowed=COLUMNS)
    return table


def _is_list(column: pa.DataType) -> bool:
    kinds = (pa.types.is_list, pa.types.is_large_list, pa.types.is_fixed_size_list)
    return any(kind(column) for kind in kinds) and pa.types.is_floating(column.value_type)


def _rows(table: pa.Table, name: str, ids: list[str], folder: Path) -> tuple[Tensor, Tensor]:
    """Embeddings (N, D) and probabilities (N, P), which training rows lack, of one split."""
    rows = table.filter(pc.equal(table["split"], name))
    if rows["id"].to_pylist() != ids:
        raise UserError(f"embeddings of other {name} rows", file=folder / EMBEDDINGS)
    embedding, flat = (_matrix(rows[column], folder) for column in COLUMNS[2:])
    return torch.from_numpy(embedding), torch.from_numpy(flat.astype(np.float32))


def _matrix(column: pa.ChunkedArray, folder: Path) -> NDArray[np.floating]:
    """Lists of one length as the rows of a matrix."""
    if len(pc.unique(pc.list_value_length(column))) != 1:
        raise UserError("not the embeddings of a run: rows of several lengths", file=folder / EMBEDDINGS)
    values: NDArray[np.floating] = pc.list_flatten(column).to_numpy()
    return values.reshape(len(column), -1).copy()
