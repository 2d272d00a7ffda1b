"""Small runs that are trained in a second, and what they leave."""

from __future__ import annotations

from pathlib import Path

import torch
from builders import tiny_job

from mlcl.training.context import Context
from mlcl.training.experiment import run_experiment
from mlcl.training.material import Material

TAGS = (
    "objective.heads={}",
    "objective.classifier.loss=bce",
    "objective.classifier.labels=tags",
    "evaluation.metric=val/micro_f1",
)
RATINGS = (
    "objective.heads={}",
    "objective.classifier.labels=ratings",
    "data.subset.n=20",
    "data.subset.labels=detail",
)
TASKS = {"single": (), "multi_label": TAGS, "aspects": RATINGS}
"""What makes each task of `builders.text_dataset`."""


def trained(
    data: Path, home: Path, *settings: str, name: str = "run", test: bool = True, **train: object
) -> tuple[Path, Material, dict[str, float]]:
    """A run's folder in `home`, its material and its figures."""
    material = Material.of(tiny_job(data, *settings, **{"epochs": 2, **train}), home)
    context = Context(torch.device("cpu"))
    outcome = run_experiment(
        material, folder=home / name, context=context, listener=lambda _: None, test=test
    )
    return home / name, material, outcome.metrics
