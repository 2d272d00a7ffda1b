"""Reads embeddings and probabilities of a finished run, and computes its metrics at any neighbour setting.

A setting is a number of neighbours k, their weight lambda, and the temperature of their votes.

Shapes: N rows of a split, D embedding, P probabilities of a row.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import torch
from torch import Tensor
from typing_extensions import Self

from mlcl.data import Split
from mlcl.data.format import SPLITS
from mlcl.errors import UserError
from mlcl.evaluation import QueryRows, Setting, neighbour_overlap, search
from mlcl.evaluation.tasks import Array, as_label_sets, known_rows
from mlcl.labels import LabelRows
from mlcl.training.embeddings import Datastore, RankRows
from mlcl.training.job_data import JobData
from mlcl.training.neighbour_grid import AXES
from mlcl.training.run_files import EMBEDDINGS, matrix, read_embeddings
from mlcl.training.split_metrics import METRIC_NAMES, decision_metrics

COLUMNS = ("id", "split", "embedding", "probabilities")


@dataclass(frozen=True)
class StoredRun:
    """A finished run, read from its folder.

    `embeddings` (N, D) are keyed by split, and so are the `probabilities` of validation and test. A trial of
    a search does not read the test split, so its run has no test rows.

    Example:
        >>> run = StoredRun.read(folder, JobData.of(job, home))
        >>> run.metrics(Setting(k=10, lambda_=0.5, temperature=1.0))["knn/test/micro_f1"]
    """

    job_data: JobData
    embeddings: dict[str, Tensor]
    probabilities: dict[str, Tensor]

    @classmethod
    def read(cls, folder: Path, job_data: JobData, *, test: bool = True) -> Self:
        """Reads the folder of a run, or a folder that its artifacts were downloaded to.

        Raises UserError if the run left no embeddings, as a baseline does, if the embeddings belong to other
        rows than those of `job_data`, or if `test` is true and there are no test rows.
        """
        if job_data.job.baseline is not None:
            raise UserError("a baseline has no embeddings", file=folder, found=job_data.job.baseline)
        table = _read_table(folder / EMBEDDINGS)
        stored_splits = pc.unique(table["split"]).to_pylist()
        run = cls(job_data, {}, {})
        for name in SPLITS:
            if name not in stored_splits:
                if name == "test" and not test:
                    continue
                raise UserError(f"the run left no embeddings of {name} rows", file=folder / EMBEDDINGS)
            split = run.split(name)
            run.embeddings[name], flat_NP = _select_rows(table, name, split.ids, folder / EMBEDDINGS)
            if name != "train":
                aspects = [len(job_data.space.aspects)] if job_data.task == "aspects" else []
                run.probabilities[name] = flat_NP.reshape(len(split), *aspects, -1)
        return run

    @property
    def tested(self) -> bool:
        """Whether the run read the test split."""
        return "test" in self.embeddings

    def split(self, name: str) -> Split:
        """Returns the split of this name; for `train`, the rows that the run was trained on."""
        return self.job_data.train if name == "train" else self.job_data.dataset.split(name)

    def labels(self, split: str) -> LabelRows:
        """Returns a split's targets as label sets: each class, or rating of an aspect, becomes a label."""
        return as_label_sets(self.job_data.targets(self.split(split)), self.job_data.space.n_classes)

    def datastore(self) -> Datastore:
        """Returns the training rows as a datastore."""
        return self.job_data.datastore(RankRows(self.embeddings["train"]))

    def metrics(self, setting: Setting) -> dict[str, float]:
        """Returns the metrics `knn/val/...` and `knn/test/...` that the run would have logged at `setting`.

        With `lambda_` 0 the neighbours have no weight, and the values are those of the model alone. The
        metrics of the test split are absent if the run did not read it.
        """
        job_data, store = self.job_data, self.datastore()
        score = job_data.metrics()
        blended, overlap = {}, {}
        for split in self.probabilities:
            neighbours = store.retrieve(self.embeddings[split], setting.k)
            blended[split] = store.blend(neighbours, self.probabilities[split], setting)
            overlap[split] = store.overlap(neighbours, job_data.targets(self.split(split)), setting.k)
        decision = job_data.decide(blended["validation"])
        metrics = decision_metrics("knn/", decision)
        for split, probabilities in blended.items():
            prefix = f"knn/{METRIC_NAMES[split]}"
            metrics |= score(prefix, probabilities, self.split(split), decision, overlap[split])
        return metrics

    def grid(self, ks: Sequence[int], lambdas: Sequence[float], temperatures: Sequence[float]) -> Array:
        """Evaluates the job's metric at every setting, on validation and on test.

        A k beyond the number of training rows is replaced by that number. Returns a structured array with
        fields `k`, `lambda`, `temperature`, `val` and `test` (NaN if the run did not read the test split, or
        no row of it has a label), sorted by the first three. The values equal those of `metrics`, but for the
        rounding of probabilities that `search` does where it chooses thresholds. Raises ValueError for an
        invalid grid.
        """
        store, scoring = self.datastore(), self.job_data.scoring
        ks = [min(k, len(self.job_data.train)) for k in ks]
        targets = self.job_data.targets(self.split("test")) if self.tested else None
        tested = targets is not None and bool(known_rows(store.task, targets).any())

        def rows(split: str) -> QueryRows:
            neighbours = store.retrieve(self.embeddings[split], max(ks, default=1))
            return self.job_data.queries(self.split(split), neighbours, self.probabilities[split])

        result = search(
            rows("validation"),
            store.labels,
            task=store.task,
            ks=ks,
            lambdas=lambdas,
            temperatures=temperatures,
            scoring=scoring,
            held_out=rows("test") if tested else None,
        )
        fields = [("k", np.int64), *((name, np.float64) for name in ("lambda", "temperature", "val", "test"))]
        table = np.empty(len(result.table), dtype=fields)
        for axis in AXES:
            table[axis] = result.table[axis]
        table["val"] = result.table[scoring.metric]
        table["test"] = np.nan if result.held_out is None else result.held_out
        return table

    def overlap(self, ks: Sequence[int], split: str = "test") -> list[float]:
        """Returns, for each k, the mean fraction of the k neighbours' labels that the row has too.

        A class counts as one label, and so does the rating of an aspect. Rows without a class or rating are
        left out; the value is NaN if no row remains. Source: kNN-MLTC Table 6.
        """
        targets = self.job_data.targets(self.split(split))
        rows = torch.from_numpy(np.flatnonzero(known_rows(self.job_data.task, targets)))
        if not len(rows):
            return [float("nan")] * len(ks)
        label_pair = self.labels("train"), self.labels(split).take(rows)
        neighbours = self.datastore().retrieve(self.embeddings[split][rows], max(ks))
        return [neighbour_overlap(neighbours, *label_pair, k) for k in ks]


def _read_table(file: Path) -> pa.Table:
    try:
        table = read_embeddings(file)
        table.validate(full=True)
    except (OSError, pa.ArrowException) as error:
        raise UserError("the run's embeddings cannot be read", file=file, found=error) from None
    if not set(COLUMNS) <= set(table.column_names):
        raise UserError("not the embeddings of a run", file=file, found=table.column_names, allowed=COLUMNS)
    return table


def _select_rows(table: pa.Table, name: str, ids: list[str], file: Path) -> tuple[Tensor, Tensor]:
    """Returns the embeddings (N, D) and the probabilities (N, P) of a split; for training rows P is 0."""
    rows = table.filter(pc.equal(table["split"], name))
    if rows["id"].to_pylist() != ids:
        raise UserError(f"embeddings of other {name} rows", file=file)
    try:
        embedding_ND, flat_NP = (matrix(rows[column]) for column in COLUMNS[2:])
        return embedding_ND.float(), flat_NP.float()
    except (ValueError, TypeError, pa.ArrowException) as error:
        raise UserError("not the embeddings of a run", file=file, found=error) from None
