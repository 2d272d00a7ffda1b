"""What a sweep was asked to do, and whether it can be done."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mlcl.config import JobConfig, Space, corners, dump_job, load_job
from mlcl.errors import UserError
from mlcl.training.checks import check_job
from mlcl.training.context import pick_device
from mlcl.training.material import Material


@dataclass(frozen=True)
class SweepPlan:
    """What a sweep was asked to do."""

    job: JobConfig
    space: Space
    space_text: str
    trials: int
    seeds: int
    baselines: Sequence[tuple[str, JobConfig]]
    cpus: float = 1
    gpus: float | None = None

    @property
    def score(self) -> str:
        """The metric of a finished trial: the best over the free keys, where the space names some."""
        metric = self.space.metric
        return f"knn_best/val/{metric.rpartition('/')[2]}" if self.space.posthoc else metric

    def search_job(self) -> JobConfig:
        """The job that all trials start from: selecting metric and post-hoc grid of the space."""
        return self.with_grid(self.job)

    def with_grid(self, job: JobConfig) -> JobConfig:
        """A job with the space's metric, its post-hoc grid, and one thread for each CPU of a trial."""
        settings: dict[str, Any] = {
            "experiment": self.job.experiment,  # nested runs share their parent's experiment
            "evaluation.metric": self.space.metric,
            **self.space.posthoc,
        }
        if job.train.threads is None:
            settings["train.threads"] = max(1, int(self.cpus))
        return load_job(dump_job(job), settings)


def check_plan(plan: SweepPlan, home: Path) -> Material:
    """Everything that can be wrong, before Ray or MLflow are touched. Raises UserError."""
    if plan.job.train.workers > 1:
        raise UserError(
            "trials of a sweep run in one process each",
            key="train.workers",
            found=plan.job.train.workers,
            allowed=1,
        )
    if not os.environ.get("RAY_ADDRESS"):
        device = "cuda" if plan.gpus else plan.job.train.device
        pick_device(device)
    search_job = plan.search_job()
    material = Material.of(search_job, home)
    for corner in corners(plan.space):
        check_job(load_job(dump_job(search_job), corner), material.dataset.info)
    for name, job in plan.baselines:
        _check_baseline(name, Material.of(plan.with_grid(job), home), material)
    return material


def _check_baseline(name: str, baseline: Material, swept: Material) -> None:
    """A baseline is comparable: the same data and the same targets."""
    pairs = {
        "data": (baseline.fingerprint, swept.fingerprint),
        "objective.classifier.labels": tuple(
            material.job.objective.classifier.labels for material in (baseline, swept)
        ),
    }
    for key, (found, allowed) in pairs.items():
        if found != allowed:
            raise UserError(
                "a baseline needs the swept job's", file=name, key=key, found=found, allowed=allowed
            )
