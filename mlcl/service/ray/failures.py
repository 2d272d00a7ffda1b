"""Describes on which node a training failed, and what the error means for that node."""

from __future__ import annotations

import re

NOTES = {
    r"uncorrectable ecc|ecc error": "the memory of its GPU is faulty (ECC): take the node out",
    r"nccl.*(timeout|timed out)|watchdog": "the GPUs' network did not answer in time (NCCL)",
    r"cuda error|cublas|cudnn": "its GPU failed",
    r"died|crashed|unavailable|preempted": "its process or node is lost",
}
"""Maps a pattern of an error's text to its meaning for the user."""


def failure_note(rank: int, node: str, error: object) -> str:
    """Returns the line that names the rank and the node of an error, and its meaning if that is known."""
    text = " ".join(str(error).split())
    return f"rank {rank} on {node}: {_meaning(text) or 'an error'}: {text[-300:]}"


def with_node(reason: str) -> str:
    """Returns the reason of a failure in this process, with this node's address and the meaning if known."""
    import ray

    return f"{reason} ({': '.join(filter(None, (f'on {ray.util.get_node_ip_address()}', _meaning(reason))))})"


def _meaning(text: str) -> str:
    return next((note for pattern, note in NOTES.items() if re.search(pattern, text, re.IGNORECASE)), "")
