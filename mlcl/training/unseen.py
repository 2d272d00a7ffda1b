"""The encoder on classes that were held out: how well their test rows are told apart.

Shapes: N rows that left training, M of the test split, D embedding, C held-out classes.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from mlcl.data import Split
from mlcl.data.format import HeldOut
from mlcl.data.modifications import SHOTS
from mlcl.evaluation.few_shot import FIGURES, FewShot
from mlcl.evaluation.tasks import Task
from mlcl.labels import LabelRows
from mlcl.training.classifier import Labels
from mlcl.training.job_data import JobData

DRAWS = 10
"""Draws of the rows that the probe learns from."""
WAYS = ("unseen/1nn/test/", f"unseen/{SHOTS}shot/test/")


def unseen_names(job_data: JobData) -> list[str]:
    """The names of the figures; none where no class is held out."""
    held_out = job_data.dataset.info.held_out
    if held_out is None:
        return []
    task = _task(job_data, held_out)
    return [f"{way}{name}" for way in WAYS for name in FIGURES[task]]


def unseen_metrics(job_data: JobData, encode: Callable[[Split], Tensor]) -> dict[str, float]:
    """The figures of the test rows that have held-out classes, and the numbers of these classes and rows.

    `encode` gives the embeddings (M, D) of a split's rows. The nearest neighbour is one of the training rows
    that the classes took along, and the probe learns from some of them. Of several labels the held-out ones
    are predicted. The figures are NaN where no test row has such a class.
    """
    held_out, config = job_data.dataset.info.held_out, job_data.job.data.hold_out
    assert held_out is not None
    assert config is not None
    numbers = {"unseen/classes": float(len(held_out.classes)), "unseen/rows": 0.0}
    left, test = job_data.dataset.unseen("train"), job_data.dataset.unseen("test")
    if left is None or test is None:
        return numbers | dict.fromkeys(unseen_names(job_data), math.nan)
    rows = FewShot(encode(left), _targets(left, held_out), _task(job_data, held_out), len(held_out.classes))
    queries_MD, targets = encode(test), _targets(test, held_out)
    figures = (
        rows.nearest(queries_MD, targets),
        rows.probe(queries_MD, targets, shots=SHOTS, draws=DRAWS, seed=config.seed),
    )
    named = {f"{way}{name}": its[name] for way, its in zip(WAYS, figures, strict=True) for name in its}
    return numbers | {"unseen/rows": float(len(test))} | named


def _task(job_data: JobData, held_out: HeldOut) -> Task:
    kind = job_data.dataset.info.space(held_out.labels).kind
    return "multi_label" if kind == "multi_label" else "single"


def _targets(split: Split, held_out: HeldOut) -> Labels:
    """The rows' held-out classes or labels, numbered anew from 0."""
    labels, classes = split.labels(held_out.labels), torch.tensor(held_out.classes)
    return labels.only(classes) if isinstance(labels, LabelRows) else torch.searchsorted(classes, labels)
