"""Small runs that are trained in a second, and the files that they leave."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from builders import tiny_job
from safetensors.torch import load_file
from torch import Tensor

from mlcl.config import JobConfig
from mlcl.training.context import ONE_PROCESS
from mlcl.training.events import Event
from mlcl.training.experiment import run_experiment
from mlcl.training.export import write_export
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
UNKNOWN = (
    "objective.heads={sets: {loss: jaccard, labels: findings, weight: 0.3, projection: {dim: 8}}}",
    "objective.classifier={loss: bce, labels: findings}",
    "evaluation.metric=val/micro_f1",
    "evaluation.threshold=per_label",
)
"""The overrides of a job on `builders.unknown_dataset`."""
TASKS = {"single": (), "multi_label": TAGS, "aspects": RATINGS}
"""The overrides that make each task of `builders.text_dataset`."""
TEXT_BASELINES = [
    "majority",
    "text_logreg",
    "text_svm",
    "tfidf_knn",
    "tfidf_logreg",
    "tfidf_logreg_balanced",
    "tfidf_svm",
]
"""The baselines that fit texts without another package, by name."""


def run(
    job: JobConfig, home: Path, folder: Path | None = None, events: list[Event] | None = None, **how: Any
) -> tuple[JobData, dict[str, float]]:
    """Runs a job in one process; returns its data and its metrics without times, as in `result.json`."""
    job_data, event_list = JobData.of(job, home), [] if events is None else events
    outcome = run_experiment(
        job_data, folder=folder or home / "run", context=ONE_PROCESS, listener=event_list.append, **how
    )
    assert outcome is not None
    metrics = {name: value for name, value in outcome.metrics.items() if not name.startswith("time/")}
    return job_data, metrics


def trained(
    data: Path, home: Path, *settings: str, name: str = "run", test: bool = True, **train: object
) -> tuple[Path, JobData, dict[str, float]]:
    """Trains a tiny job and returns the run's folder in `home`, its data and its metrics."""
    job = tiny_job(data, *settings, **{"epochs": 2, **train})
    return home / name, *run(job, home, home / name, test=test)


def weights(folder: Path) -> dict[str, Tensor]:
    """Returns the trained weights of a run's folder."""
    return load_file(folder / "model" / "weights.safetensors")


def same(left: dict[str, Tensor], right: dict[str, Tensor]) -> bool:
    return left.keys() == right.keys() and all(torch.equal(left[name], right[name]) for name in left)


def exported(job: JobConfig, home: Path) -> tuple[dict[str, float], Path]:
    """Runs and exports the job, and returns its metrics and the folder of the model."""
    job_data, metrics = run(job, home)
    write_export(home / "model", home / "run", job_data, {"run_id": "r1", "name": "a | run"})
    return metrics, home / "model"
