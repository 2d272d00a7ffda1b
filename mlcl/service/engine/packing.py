"""The resources that a command asks for, and the number of trainings that fit into a cluster at once."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from mlcl.config import JobConfig
from mlcl.errors import UserError
from mlcl.service.engine.budget import Budget, check_budget, parse_budget
from mlcl.service.process.limits import usable_cpus
from mlcl.service.ray.address import on_cluster
from mlcl.training.context import pick_device

RESOLUTION = 10_000
"""Ray's resolution of resources: it counts ten-thousandths, so that 0.1 fits three times into 0.3."""


@dataclass(frozen=True)
class Packing:
    """The number of trainings at once, the workers of each, and the CPUs and GPUs of each worker."""

    concurrent: int
    cpus: float
    gpus: float
    workers: int


def _choose_gpus(nodes: Sequence[Mapping[str, float]], gpus: float | None, device: str) -> float:
    if gpus is not None:
        return gpus
    has_gpu = any(node.get("GPU", 0) >= 1 for node in nodes)
    if device == "cuda" and not has_gpu:
        raise UserError("no node has a GPU", key="train.device", found=device, allowed="auto, cpu")
    return float(has_gpu and device != "cpu")


def _check_shares(workers: int, cpus: float, gpus: float) -> None:
    """Raises UserError for CPUs and GPUs per worker that Ray or NCCL would refuse during a sweep."""
    if not math.isfinite(cpus) or _units(cpus) < 1:
        allowed = f"{1 / RESOLUTION:g} or more"
        raise UserError("a trial needs a share of a CPU", key="--cpus", found=cpus, allowed=allowed)
    whole = math.isfinite(gpus) and gpus == int(gpus)
    if not ((whole and gpus >= 0) or (0 < gpus < 1 and _units(gpus) >= 1)):
        allowed = f"0, a fraction from {1 / RESOLUTION:g} to 1, or a whole number"
        raise UserError("not a share of GPUs", key="--gpus", found=gpus, allowed=allowed)
    if workers > 1 and not whole:
        raise UserError(
            "two workers of one trial cannot share a GPU: NCCL refuses it",
            key="--gpus",
            found=gpus,
            allowed="a whole number, or train.workers=1",
        )


def _count_slots(node: Mapping[str, float], cpus: float, gpus: float) -> int:
    slots = round(node.get("CPU", 0) * RESOLUTION) // _units(cpus)
    if gpus == 0:
        return slots
    n_gpus = int(node.get("GPU", 0))
    return min(slots, n_gpus * (RESOLUTION // _units(gpus)) if gpus < 1 else n_gpus // int(gpus))


def _units(amount: float) -> int:
    """Returns an amount in ten-thousandths, rounded down as Ray does, so that 1/6 of a GPU fits six times."""
    return int(amount * RESOLUTION)


def _room_error(
    nodes: Sequence[Mapping[str, float]], workers: int, cpus: float, gpus: float, slots: int
) -> UserError:
    resources = f"{cpus:g} CPUs, {gpus:g} GPUs"
    if slots > 0:
        return UserError(
            "more workers than fit into the cluster",
            key="train.workers",
            found=f"{workers} with {resources} each",
            allowed=f"at most {slots}",
        )
    order = ("GPU", "CPU") if gpus > 0 else ("CPU", "GPU")
    largest = max(nodes, key=lambda node: [node.get(name, 0) for name in order], default={})
    return UserError(
        "no node has room for a trial" if workers == 1 else "no node has room for a worker",
        key="--cpus/--gpus",
        found=resources,
        allowed=f"at most {largest.get('CPU', 0):g} CPUs, {largest.get('GPU', 0):g} GPUs: the largest node",
    )


@dataclass(frozen=True)
class Resources:
    """The resources that a command asks for.

    `cpus` and `gpus` are those of each worker. If `gpus` is None, a worker has one GPU if the cluster has any
    and the device of the job is not `cpu`. `parallel` is the number of trainings that run at once, by default
    as many as fit.
    """

    cpus: float = 1
    gpus: float | None = None
    parallel: int | None = None
    budget: Budget | None = None

    @classmethod
    def of(cls, cpus: float, gpus: float | None, parallel: int | None, budget: str | None) -> Resources:
        """Builds the resources from command-line options. Raises UserError if `budget` cannot be parsed."""
        return cls(cpus, gpus, parallel, None if budget is None else parse_budget(budget))

    def check_shares(self, jobs: Iterable[JobConfig]) -> None:
        """Raises UserError if Ray or NCCL would refuse a job's shares, or for GPU time without GPUs."""
        gpus = self.gpus or 0.0
        for job in jobs:
            _check_shares(job.train.workers, self.cpus, gpus)
        if self.gpus is not None:
            check_budget(self.budget, gpus)

    def check(self, job: JobConfig) -> None:
        """Raises UserError as `check_shares`, or if this machine lacks the resources. It needs no Ray."""
        self.check_shares([job])
        device = job.train.device
        if not on_cluster() and job.train.workers == 1:
            pick_device("cuda" if self.gpus else device)
            if self.cpus > (n_cpus := usable_cpus()):
                allowed = f"at most {n_cpus}, the CPUs of this machine"
                raise UserError("no room for a trial", key="--cpus", found=self.cpus, allowed=allowed)
        if self.budget is not None and self.gpus is None:
            check_budget(self.budget, self._estimate_gpus(device))

    def _estimate_gpus(self, device: str) -> float:
        """Estimates the number of GPUs of a worker before Ray starts: 1 on a cluster, which may have some."""
        if device == "cpu":
            return 0.0
        if on_cluster():
            return 1.0
        import torch

        return float(torch.cuda.is_available())

    def local_cpus(self, job: JobConfig) -> int:
        """Returns the least CPUs of a local Ray: those of a training if it has several workers, else 1."""
        workers = job.train.workers
        return workers * max(1, math.ceil(self.cpus)) if workers > 1 else 1

    def pack(self, job: JobConfig, most: int) -> Packing:
        """Packs at most `most` trainings into the cluster that this process is connected to.

        If RAY_ADDRESS names a cluster and `parallel` is set, trainings that do not fit wait for nodes that an
        autoscaler adds. Otherwise raises UserError if not one training fits, since Ray would wait silently
        and forever. A fraction of a GPU is never spread over two GPUs.
        """
        import ray  # imported here, since a dry run needs no Ray

        workers = job.train.workers
        if most == 0:  # Ray is not started in this case
            return Packing(0, self.cpus, 0.0, workers)
        nodes = [dict(node["Resources"]) for node in ray.nodes() if node["Alive"]]
        gpus = _choose_gpus(nodes, self.gpus, job.train.device)
        _check_shares(workers, self.cpus, gpus)
        concurrent = most if self.parallel is None else min(self.parallel, most)
        slots = sum(_count_slots(node, self.cpus, gpus) for node in nodes)
        if self.parallel is None or not on_cluster():
            if slots < workers:
                raise _room_error(nodes, workers, self.cpus, gpus, slots)
            concurrent = min(slots // workers, concurrent)
        return Packing(concurrent, self.cpus, gpus, workers)
