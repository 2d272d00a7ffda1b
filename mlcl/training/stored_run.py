"""The stored embeddings and probabilities of a finished run.

Shapes: N rows of a split, D embedding, P probabilities of a row.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Self

import pyarrow as pa
import pyarrow.compute as pc
from torch import Tensor

from mlcl.data import Split
from mlcl.data.format import SPLITS
from mlcl.errors import UserError
from mlcl.training.embeddings_file import EMBEDDINGS, matrix, read_embeddings
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

        Raises UserError where there are no embeddings, as of a baseline, or those of other rows.
        """
        if job_data.job.baseline is not None:
            raise UserError("a baseline has no embeddings", file=folder, found=job_data.job.baseline)
        table = _read(folder / EMBEDDINGS)
        left = pc.unique(table["split"]).to_pylist()
        run = cls(job_data, {}, {})
        for name in SPLITS:
            if name not in left:
                if name == "test" and not test:
                    continue
                raise UserError(f"the run left no embeddings of {name} rows", file=folder / EMBEDDINGS)
            split = run.split(name)
            run.embeddings[name], flat_NP = _rows(table, name, split.ids, folder)
            if name != "train":
                aspects = [len(job_data.space.aspects)] if job_data.task == "aspects" else []
                run.probabilities[name] = flat_NP.reshape(len(split), *aspects, -1)
        return run

    @property
    def tested(self) -> bool:
        """Whether the run read the test split."""
        return "test" in self.embeddings

    def split(self, name: str) -> Split:
        """The rows of a split; of training, those that the run was trained on."""
        return self.job_data.train if name == "train" else self.job_data.dataset.split(name)

    def datastore(self) -> Datastore:
        """The training rows as a datastore for neighbours."""
        return self.job_data.datastore(RankRows(self.embeddings["train"]))


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
    columns = [rows[column] for column in COLUMNS[2:]]
    if any(len(pc.unique(pc.list_value_length(column))) != 1 for column in columns):
        raise UserError("not the embeddings of a run: rows of several lengths", file=folder / EMBEDDINGS)
    embedding_ND, flat_NP = map(matrix, columns)
    return embedding_ND, flat_NP.float()
