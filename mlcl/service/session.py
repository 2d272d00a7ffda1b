"""A Ray session: the cluster that RAY_ADDRESS names, or one on this machine for as long as it is needed."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager

import ray


@contextmanager
def ray_session(cpus: int = 1) -> Iterator[None]:
    """Connects to RAY_ADDRESS where it is set, else starts a local Ray and ends it on the way out.

    A local Ray has the machine's CPUs, or `cpus` where that is more: processes then share cores, which is
    slow but right, so that a two-worker job can be tried on any laptop.
    """
    if ray.is_initialized():
        yield
        return
    address = os.environ.get("RAY_ADDRESS")
    if address:
        ray.init(address=address, log_to_driver=False, logging_level=logging.WARNING)
    else:
        # "local": a plain init would join whatever cluster an earlier session left behind.
        ray.init(
            address="local",
            num_cpus=max(cpus, os.cpu_count() or 1),
            include_dashboard=False,
            log_to_driver=False,
            logging_level=logging.ERROR,
        )
    try:
        yield
    finally:
        ray.shutdown()
