"""The neighbours' metrics of a finished run under any (k, lambda, tau), from its stored embeddings.

Shapes: N rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch

from mlcl.evaluation import QueryRows, Setting, neighbour_overlap, search
from mlcl.evaluation.tasks import Array, as_label_sets, known_rows
from mlcl.labels import LabelRows
from mlcl.training.job_data import JobData
from mlcl.training.split_metrics import decision_figures
from mlcl.training.stored_run import StoredRun

NAMES = {"validation": "val", "test": "test"}


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
        return QueryRows(neighbours, run.job_data.targets(run.split(split)), run.probabilities[split])

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
