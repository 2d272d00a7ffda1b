"""The address of a Ray cluster, from the environment. Imports no Ray."""

from __future__ import annotations

import os

from mlcl.config import JobConfig
from mlcl.tracking.network import host_and_port

RAY = "RAY_ADDRESS"


def on_cluster() -> bool:
    """Whether RAY_ADDRESS names a cluster. Nodes of a cluster may be lost and replaced."""
    return bool(os.environ.get(RAY))


def ray_address() -> tuple[str, int]:
    """Host and port of RAY_ADDRESS; an empty host for `auto` and other values without a port."""
    return host_and_port(os.environ.get(RAY, ""))


def placed_by_ray(job: JobConfig) -> bool:
    """Whether Ray places the training of a job: one of several workers, and any on a cluster.

    The driver of a submitted command has the CPUs of the head. A baseline is fitted where the command runs.
    """
    return job.train.workers > 1 or (on_cluster() and job.baseline is None)
