"""The metrics of an exported model on a split whose labels are known, as a run logs them.

Shapes: M rows, O an encoder's output, C classes, L labels, A aspects.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

import torch
from torch import Tensor

from mlcl.data import Split
from mlcl.evaluation import evaluate
from mlcl.evaluation.tasks import known_rows
from mlcl.training.export.model import ExportedModel
from mlcl.training.export.model_index import Index, Way
from mlcl.training.hierarchy import coarse_accuracy
from mlcl.training.job_data import targets_of

NAMES = {"train": "train", "validation": "val", "test": "test"}


def can_score(index: Index, split: Split) -> bool:
    """Whether the split has the model's label space, class by class, and any row a label in it."""
    if index.labels not in split.info.space_names() or split.info.space(index.labels) != index.space:
        return False
    return bool(known_rows(index.task, targets_of(split, index.labels, index.task)).any())


def score(
    model: ExportedModel, split: Split, output_MO: Tensor, ways: Iterable[Way], threshold: float | None = None
) -> dict[str, float]:
    """Metrics by their names in a run, as `knn/test/micro_f1`, from the encoder's outputs."""
    index = model.index
    targets = targets_of(split, index.labels, index.task)
    levels = {
        name: torch.tensor(level.parents)
        for name, level in index.levels.items()
        if name in split.info.label_spaces and split.info.space(name).classes == level.classes
    }
    metrics: dict[str, float] = {}
    for way in ways:
        probabilities = model.probabilities(output_MO, way)
        cut = index.threshold if threshold is None else threshold
        values = evaluate(index.task, probabilities, targets, cut, index.space.aspects)
        values |= coarse_accuracy(probabilities, split, levels)
        setting = index.ways[way]
        overlap = math.nan
        if setting is not None:
            overlap = model.store.overlap(model.store.retrieve(output_MO, setting.k), targets, setting.k)
        if not math.isnan(overlap):
            values["neighbour_overlap"] = overlap
        name = f"{index.prefix(way)}{NAMES[split.name]}"
        metrics |= {f"{name}/{metric}": value for metric, value in values.items()}
    return metrics
