"""Texts with the labels of rows."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from mlcl.data import Split
from mlcl.evaluation.tasks import Array, array
from mlcl.labels import LabelRows
from mlcl.training.job_data import JobData

NONE = "no label"


def row_texts(job_data: JobData, split: Split, rows: Array) -> list[str]:
    """The id and the labels of each row: `id7: class`, `id7: a, b`, `id7: rooms 3, value 4`."""
    ids = split.ids
    return [f"{ids[row]}: {text}" for row, text in zip(rows, label_texts(job_data, split, rows), strict=True)]


def label_texts(job_data: JobData, split: Split, rows: Array) -> list[str]:
    """The labels of each row that are to be predicted."""
    space = job_data.dataset.info.space(job_data.job.objective.classifier.labels)
    targets = job_data.targets(split)
    index = torch.from_numpy(rows)
    if isinstance(targets, LabelRows):
        return [_listed([space.classes[c] for c in row]) for row in targets.take(index).lists()]
    class_NA = array(targets[index])
    if job_data.task == "single":
        return [space.classes[c] if c >= 0 else NONE for c in class_NA]
    return [_listed(_ratings(row, space.aspects, space.scale)) for row in class_NA]


def _ratings(row: Array, aspects: Sequence[str], scale: Sequence[float]) -> list[str]:
    return [f"{aspect} {scale[c]:g}" for aspect, c in zip(aspects, row, strict=True) if c >= 0]


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names) or NONE
