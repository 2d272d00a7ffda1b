"""Reads the address of a Ray cluster from the environment, without importing Ray."""

from __future__ import annotations

import os

from mlcl.config import JobConfig
from mlcl.tracking.network import host_and_port

RAY = "RAY_ADDRESS"


def on_cluster() -> bool:
    """Whether RAY_ADDRESS is set, so that commands use a Ray cluster."""
    return bool(os.environ.get(RAY))


def ray_address() -> tuple[str, int]:
    """Returns host and port of RAY_ADDRESS; an empty host for `auto` and other values without a port."""
    return host_and_port(os.environ.get(RAY, ""))


def placed_by_ray(job: JobConfig) -> bool:
    """Whether Ray chooses the node of a job's training: for several workers, and for all jobs on a cluster.

    The process of a submitted command itself runs on the head. A fitted baseline is an exception, which is
    fitted in the command's process.
    """
    return job.train.workers > 1 or (on_cluster() and job.baseline is None)
