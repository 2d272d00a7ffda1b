"""Reads the address of a Ray cluster from the environment and asks the cluster, without importing Ray."""

from __future__ import annotations

import os
import re
import subprocess
import sys

from mlcl.config import JobConfig
from mlcl.tracking.network import host_and_port

RAY = "RAY_ADDRESS"
ASK_SECONDS = 15.0
"""The number of seconds to wait for the version of a Ray cluster."""
FORMS = "HOST:PORT of the cluster's head, or auto; unset: a Ray of the command's own"
"""The values of RAY_ADDRESS that a command can use."""


def on_cluster() -> bool:
    """Whether RAY_ADDRESS names a Ray cluster, which commands then use; `local` does not."""
    return os.environ.get(RAY, "") not in ("", "local")


def ray_address() -> tuple[str, int]:
    """Returns host and port of RAY_ADDRESS; an empty host for `auto` and other values without a port."""
    return host_and_port(os.environ.get(RAY, ""))


def is_dashboard(address: str) -> bool:
    """Whether an address is that of a dashboard: it takes submitted jobs, and no command can join it."""
    return re.match("https?://", address) is not None


def ask_cluster(address: str) -> tuple[str, str]:
    """Returns the Ray version of the cluster at HOST:PORT and an empty text, or else "" and the reason.

    A child process asks, since Ray's client waits silently and ends its process if it cannot connect.
    """
    command = [sys.executable, "-m", "mlcl.service.ray.private", address]
    try:
        process = subprocess.run(command, capture_output=True, text=True, timeout=ASK_SECONDS, check=False)
    except subprocess.TimeoutExpired:
        return "", f"no answer in {ASK_SECONDS:g} seconds"
    version = process.stdout.strip()
    return version, "" if version else process.stderr.strip() or "it gives no version"


def is_refused(reason: str) -> bool:
    """Whether the text of an error of Ray says that the token is wrong, or that there is none to give."""
    return "AuthenticationError" in reason or "AuthenticationTokenLoader" in reason


def placed_by_ray(job: JobConfig) -> bool:
    """Whether Ray places a job's training: with several workers, and on a cluster unless it is a baseline."""
    return job.train.workers > 1 or (on_cluster() and job.baseline is None)
