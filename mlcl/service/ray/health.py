"""Notes on unhealthy nodes of a worker group: which rank failed, or is slow, and on which node."""

from __future__ import annotations

import re
import statistics
import time
from collections.abc import Mapping, Sequence
from typing import Any

import ray
import torch
from ray.train import UserCallback
from ray.util.queue import Queue

from mlcl.training.context import Context
from mlcl.training.events import Event

SLOWER = 3.0
"""How many times slower than the median of all ranks a rank is when it is named."""
NOTES = {
    r"uncorrectable ecc|ecc error": "the memory of its GPU is faulty (ECC): take the node out",
    r"nccl.*(timeout|timed out)|watchdog": "the GPUs' network did not answer in time (NCCL)",
    r"cuda error|cublas|cudnn": "its GPU failed",
    r"died|crashed|unavailable|preempted": "its process or node is lost",
}
"""Maps a pattern of an error's text to its meaning for the user."""
NODES: list[str] = []
"""The addresses of the nodes of all ranks, in the process of Ray's controller."""


def failure_note(rank: int, node: str, error: object) -> str:
    """Returns the line that names the rank and the node of an error, and its meaning if that is known."""
    text = " ".join(str(error).split())
    found = (note for pattern, note in NOTES.items() if re.search(pattern, text, re.IGNORECASE))
    return f"rank {rank} on {node}: {next(found, 'an error')}: {text[-300:]}"


class FailureNotes(UserCallback):
    """A callback of Ray Train that sends a note to the driver for each rank that failed."""

    def __init__(self, events: Queue) -> None:
        self._events = events

    def after_exception(self, run_context: Any, worker_exceptions: Mapping[int, Exception]) -> None:  # noqa: ARG002
        """Called in Ray's controller, before it starts the group again or gives up."""
        for rank, error in sorted(worker_exceptions.items()):
            node = NODES[rank] if rank < len(NODES) else "an unknown node"
            self._events.put(Event("note", 0, 0, 0, 0, note=failure_note(rank, node, error)))


def slow_rank_notes(context: Context) -> list[str]:
    """Multiplies matrices on every rank, which all call this; returns a note for each that is SLOWER."""
    if context.world_size == 1:
        return []
    found = context.objects((ray.util.get_node_ip_address(), _seconds_of_a_product(context.device)))
    return slow_notes([node for node, _ in found], [seconds for _, seconds in found])


def slow_notes(nodes: Sequence[str], seconds: Sequence[float]) -> list[str]:
    """Returns a note for each rank whose seconds are SLOWER than the median of all."""
    usual = statistics.median_low(seconds)
    return [
        f"rank {rank} on {node}: {own / usual:.1f} times slower than the others, which wait for it"
        for rank, (node, own) in enumerate(zip(nodes, seconds, strict=True))
        if own > SLOWER * usual
    ]


def _seconds_of_a_product(device: torch.device) -> float:
    """Returns the shortest time of a product of two matrices, which other processes disturb least."""
    size = 4096 if device.type == "cuda" else 256
    matrix, times = torch.ones(size, size, device=device), []
    for _ in range(6):  # the first one warms up and does not count
        began = time.perf_counter()
        float((matrix @ matrix)[0, 0])  # waits for the device
        times.append(time.perf_counter() - began)
    return min(times[1:])
