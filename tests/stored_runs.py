"""Small runs that are trained in a second, and what they leave."""

from __future__ import annotations

from pathlib import Path

import torch
from builders import tiny_job

from mlcl.training.context import Context
from mlcl.training.experiment import run_experiment
from mlcl.training.job_data import JobData

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
) -> tuple[Path, JobData, dict[str, float]]:
    """A run's folder in `home`, its material and its figures."""
    job_data = JobData.of(tiny_job(data, *settings, **{"epochs": 2, **train}), home)
    context = Context(torch.device("cpu"))
    outcome = run_experiment(
        job_data, folder=home / name, context=context, listener=lambda _: None, test=test
    )
    return home / name, job_data, outcome.metrics
