"""What a command may use: the share of each training's workers, trainings at once, the budget."""

from __future__ import annotations

import math
from dataclasses import dataclass

from mlcl.config import JobConfig
from mlcl.service.engine.budget import Budget, check_budget
from mlcl.service.engine.packing import Packing, nodes, pack
from mlcl.service.runs.ray_session import on_cluster
from mlcl.training.context import pick_device


@dataclass(frozen=True)
class Resources:
    """`cpus` and `gpus` are a worker's share, by default a GPU where there are any; `parallel` trainings run
    at once, by default as many as fit."""

    cpus: float = 1
    gpus: float | None = None
    parallel: int | None = None
    budget: Budget | None = None

    def check(self, job: JobConfig) -> None:
        """Raises UserError, before Ray is started, where this machine lacks what the trainings need."""
        device = job.train.device
        if not on_cluster() and job.train.workers == 1:
            pick_device("cuda" if self.gpus else device)
        if self.budget is not None:
            check_budget(self.budget, self._may_have_gpus(device))

    def _may_have_gpus(self, device: str) -> float:
        """The GPU share of a worker, as far as it is known before the cluster is asked."""
        if self.gpus is not None:
            return self.gpus
        if device == "cpu":
            return 0.0
        if on_cluster():
            return 1.0
        import torch

        return float(torch.cuda.is_available())

    def local_cpus(self, job: JobConfig) -> int:
        """CPUs that a Ray of this command's own must have: a job of two workers runs on any laptop."""
        workers = job.train.workers
        return workers * max(1, math.ceil(self.cpus)) if workers > 1 else 1

    def pack(self, job: JobConfig, most: int) -> Packing:
        """How at most `most` trainings fit into the cluster. Raises UserError where none does."""
        return pack(
            nodes(),
            workers=job.train.workers,
            cpus=self.cpus,
            gpus=self.gpus,
            device=job.train.device,
            most=most,
            parallel=self.parallel,
            grows=on_cluster(),
        )
