"""The stored embeddings and probabilities of a finished run, and its metrics under any (k, lambda, tau).

Shapes: N rows of a split, D embedding, P probabilities of a row.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import torch
from torch import Tensor

from mlcl.data import Split
from mlcl.data.format import SPLITS
from mlcl.errors import UserError
from mlcl.evaluation import QueryRows, Setting, neighbour_overlap, search
from mlcl.evaluation.tasks import Array, as_label_sets, known_rows
from mlcl.labels import LabelRows
from mlcl.training.embeddings_file import EMBEDDINGS, matrix, read_embeddings
from mlcl.training.job_data import JobData
from mlcl.training.neighbours import Datastore, RankRows
from mlcl.training.split_metrics import decision_figures

COLUMNS = ("id", "split", "embedding", "probabilities")
NAMES = {"validation": "val", "test": "test"}


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


def stored_metrics(folder: Path, job_data: JobData, setting: Setting) -> dict[str, float]:
    """`knn/val/...` and `knn/test/...` of a run under `setting`, as the run itself would have logged them.

    `lambda_` 0 is the model alone. Raises UserError for a run without embeddings, or with those of
    other rows.
    """
    return setting_metrics(StoredRun.read(folder, job_data), setting)


def setting_metrics(run: StoredRun, setting: Setting) -> dict[str, float]:
    """The same of a run that was read; without figures of the test split where the run has none."""
    job_data, store = run.job_data, run.datastore()
    score = job_data.metrics()
    blended, overlap = {}, {}
    for split in run.probabilities:
        neighbours = store.retrieve(run.embeddings[split], setting.k)
        blended[split] = store.blended(neighbours, run.probabilities[split], setting)
        overlap[split] = store.overlap(neighbours, job_data.targets(run.split(split)), setting.k)
    targets = job_data.targets(run.split("validation"))
    decision = job_data.scoring.decide(job_data.task, blended["validation"], targets)
    metrics = decision_figures("knn/", decision)
    for split, probabilities in blended.items():
        metrics |= score(f"knn/{NAMES[split]}", probabilities, run.split(split), decision, overlap[split])
    return metrics


def stored_grid(
    run: StoredRun, ks: Sequence[int], lambdas: Sequence[float], temperatures: Sequence[float]
) -> Array:
    """The job's metric of a run at every setting, on validation and on test.

    A structured array with fields `k`, `lambda`, `temperature`, `val` and `test` (NaN where the run did not
    read the test split), ordered by the first three; values are those of `stored_metrics`, rounded where
    `search` rounds. A k beyond the number of training rows becomes that number. Raises ValueError for an
    empty or invalid grid.
    """
    store, scoring = run.datastore(), run.job_data.scoring
    ks = [min(k, len(run.job_data.train)) for k in ks]

    def rows(split: str) -> QueryRows:
        neighbours = store.retrieve(run.embeddings[split], max(ks, default=1))
        return run.job_data.queries(run.split(split), neighbours, run.probabilities[split])

    found = search(
        rows("validation"),
        store.labels,
        task=store.task,
        ks=ks,
        lambdas=lambdas,
        temperatures=temperatures,
        scoring=scoring,
        held_out=rows("test") if run.tested else None,
    )
    fields = [("k", np.int64), *((name, np.float64) for name in ("lambda", "temperature", "val", "test"))]
    table = np.empty(len(found.table), dtype=fields)
    for field in ("k", "lambda", "temperature"):
        table[field] = found.table[field]
    table["val"] = found.table[scoring.metric]
    table["test"] = np.nan if found.held_out is None else found.held_out
    return table


def stored_overlap(run: StoredRun, ks: Sequence[int], split: str = "test") -> list[float]:
    """For each k the share of the neighbours' labels that a split's rows have, too (kNN-MLTC Table 6).

    A class counts as one label, and so does an aspect's rating. Rows without a class or rating are left out;
    NaN where none remains.
    """
    targets = run.job_data.targets(run.split(split))
    rows = torch.from_numpy(np.flatnonzero(known_rows(run.job_data.task, targets)))
    known = label_rows(run, "train"), label_rows(run, split).take(rows)
    if not len(rows):
        return [float("nan")] * len(ks)
    neighbours = run.datastore().retrieve(run.embeddings[split][rows], max(ks))
    return [neighbour_overlap(neighbours, *known, k) for k in ks]


def label_rows(run: StoredRun, split: str) -> LabelRows:
    """The targets of a split's rows as labels: each class, or each rating of each aspect, is one label."""
    return as_label_sets(run.job_data.targets(run.split(split)), run.job_data.space.n_classes)
