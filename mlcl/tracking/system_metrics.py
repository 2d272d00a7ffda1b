"""What the machine of a training does, under MLflow's names: its pages show them as system metrics."""

from __future__ import annotations

from contextlib import suppress

import psutil
import torch

MEGABYTE = 2**20


def system_metrics() -> dict[str, float]:
    """Load of the processor since the last call, memory in use, and the same of the GPU of this process.

    Percentages and megabytes, of everything that runs there. A GPU's load needs the package nvidia-ml-py and
    is left out without it.
    """
    memory = psutil.virtual_memory()
    found = {
        "cpu_utilization_percentage": psutil.cpu_percent(),
        "system_memory_usage_megabytes": memory.used / MEGABYTE,
        "system_memory_usage_percentage": memory.percent,
    }
    if torch.cuda.is_available() and torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        found |= _gpu(torch.cuda.current_device())
    return {f"system/{name}": value for name, value in found.items()}


def _gpu(device: int) -> dict[str, float]:
    free, total = torch.cuda.mem_get_info(device)
    name = f"gpu_{device}"
    found = {
        f"{name}_memory_usage_megabytes": (total - free) / MEGABYTE,
        f"{name}_memory_usage_percentage": 100 * (total - free) / total,
    }
    with suppress(ModuleNotFoundError, RuntimeError):
        found[f"{name}_utilization_percentage"] = float(torch.cuda.utilization(device))
    return found
